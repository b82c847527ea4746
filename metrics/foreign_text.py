"""Text that anybody may have written, such as names in the files of a run, as people are shown it."""


def printable(words: str) -> str:
    """Return words for a terminal, a report or a figure: control characters except line ends become U+FFFD."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in words)
