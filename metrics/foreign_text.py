"""Converts text that anybody may have written, such as names in the files of a run, for people to read."""


def printable(words: str) -> str:
    """Return text for a terminal, a report or a figure: control characters except line ends become U+FFFD."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in words)
