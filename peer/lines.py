"""The lines between the program of a peer and the process that drives it, without I/O.

A line is a verb, then numbers in decimal, separated by single spaces, and ends with a newline. Lines to the program
are its orders, on its standard input::

    connect NODE HOST PORT                  open a connection to this node, which listens
    subscribe TOPIC, unsubscribe TOPIC
    publish MESSAGE_ID TOPIC PAYLOAD_BYTES  the payload's first 8 bytes are the message id, big-endian
    stop                                    end with status 0

Lines from the program are its reports, on its standard output; docs/programs.md explains them for authors. A report may
end with options, such as ``from=3 ts_ns=1200``.
"""

from typing import Final

from msgspec import Struct

MAX_LINE_BYTES: Final = 1024
"""The longest line, including the newline. A longer one is a fault."""

MAX_NUMBER: Final = 2**63 - 1
"""The largest number, so that a 64-bit column of a table can contain all numbers."""

REPORTS: Final[dict[str, tuple[str, ...]]] = {
    "ready": (),
    "publish": ("message_id",),
    "deliver": ("message_id",),
    "duplicate": ("message_id",),
    "link": ("peer",),
    "unlink": ("peer",),
    "graft": ("peer", "topic"),
    "prune": ("peer", "topic"),
}
"""The verbs of reports, and the fields of ``Report`` for their numbers."""

OPTIONS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "from": ("peer", frozenset({"deliver", "duplicate"})),
    "hops": ("hops", frozenset({"deliver", "duplicate"})),
    "ts_ns": ("ts_ns", frozenset(REPORTS) - {"ready"}),
}
"""The options: the field of ``Report`` that each option sets, and the verbs that may have it."""

_SHOWN_BYTES = 80


class LineError(ValueError):
    """A program broke the rules for lines. The message says how."""


class Report(Struct, frozen=True):
    """A line from the program. Fields that the line lacks are None.

    Attributes:
        verb: one of ``REPORTS``.
        message_id: the id of the message that it is about.
        peer: the neighbour.
        topic: the topic of a logical link.
        hops: the number of links that the copy has crossed.
        ts_ns: the instant of the event on CLOCK_MONOTONIC (ns).
    """

    verb: str
    message_id: int | None = None
    peer: int | None = None
    topic: int | None = None
    hops: int | None = None
    ts_ns: int | None = None


def encode_order(verb: str, *words: int | str) -> bytes:
    """Return the line of an order."""
    return " ".join([verb, *map(str, words)]).encode("ascii") + b"\n"


def parse_report(line: bytes) -> Report:
    """Parse a line without its newline.

    Raises:
        LineError: it is not a report.
    """
    try:
        verb, *words = line.decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise _wrong(line, "lines are ASCII") from None
    fields = REPORTS.get(verb)
    if fields is None:
        raise _wrong(line, f"expected one of {', '.join(REPORTS)}")
    if len(words) < len(fields):
        raise _wrong(line, f"expected {' '.join([verb, *map(str.upper, fields)])}")
    found: dict[str, int] = {field: _number(line, word) for field, word in zip(fields, words, strict=False)}
    for word in words[len(fields) :]:
        name, equals, value = word.partition("=")
        field, verbs = OPTIONS.get(name, ("", frozenset()))
        if not equals or verb not in verbs:
            raise _wrong(line, f"{verb} has no option {name!r}")
        if field in found:
            raise _wrong(line, f"{name} is there twice")
        found[field] = _number(line, value)
    return Report(verb, **found)


class Splitter:
    """Divides the output of a program into lines. It keeps the unfinished line.

    Args:
        most_bytes: the longest line, including the newline.
    """

    def __init__(self, most_bytes: int = MAX_LINE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes, without their newlines.

        Raises:
            LineError: a line is too long. Do not feed anything after it.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in (*lines, self._rest):
            if len(line) >= self._most_bytes:
                raise _wrong(line, f"a line has at most {self._most_bytes:,} bytes")
        return lines


def _number(line: bytes, word: str) -> int:
    """Parse a word as a number. ``line`` is for the error."""
    if not word.isdecimal() or len(word) > len(str(MAX_NUMBER)) or (number := int(word)) > MAX_NUMBER:
        raise _wrong(line, f"expected a number from 0 to {MAX_NUMBER}, got {word[:_SHOWN_BYTES]!r}")
    return number


def _wrong(line: bytes, problem: str) -> LineError:
    shown = line[:_SHOWN_BYTES].decode("ascii", "backslashreplace")
    more = "..." if len(line) > _SHOWN_BYTES else ""
    return LineError(f"wrote the line {shown + more!r}: {problem}")
