"""What a program of gossipsub-interop prints: lines of JSON, one per event, with ``time`` and ``msg``.

Programs differ in what they print. All print ``PeerID`` once, and ``Received Message`` for every copy, with ``id``:

| program | ``node_id`` | ``from`` and ``topic`` of a copy | ``time`` |
|---|---|---|---|
| Go | integer | both | local zone, up to 9 digits |
| Rust | text | both, but neither of duplicates | ``Z``, up to 9 digits |
| Java | integer | only ``from`` | local zone, up to 9 digits |
| Nim | text | only ``topic`` | local zone or ``Z`` |
| JavaScript | integer or text | both | ``Z``, 3 digits |
| Python | integer | both | offset, 6 digits |

Other lines are for people or for the scripts of gossipsub-interop, and mean nothing here.
"""

from typing import Any, Final, NamedTuple

import msgspec

from peer.lines import LineError
from peer.rfc3339 import PrintedTime, parse_time

MAX_LINE_BYTES: Final = 4 << 20
"""The longest line. Go prints all the message ids of an IHAVE in one."""

TOLERANCE_NS: Final = 1_000_000
"""The most by which a time may be after the instant at which its line was read, or before the program's start: clocks
are read one after the other. A change of the difference between the clocks by more than this is a step."""

_SHOWN_BYTES: Final = 120
_MAX_DIGITS: Final = 20


class Identity(NamedTuple):
    """The line ``PeerID``: the program's node, its peer ID, and when it was printed."""

    node: int
    peer_id: str
    time: PrintedTime


class Receipt(NamedTuple):
    """The line ``Received Message``: a copy of a message arrived.

    Attributes:
        message: the first 8 bytes of the message as a decimal number: its ``messageID``.
        time: when it was printed.
        sender: the peer ID of the neighbour that sent it; None = the line does not say.
        topic: the name of the message's topic; None = the line does not say.
    """

    message: int
    time: PrintedTime
    sender: str | None
    topic: str | None


def read_line(line: bytes) -> Identity | Receipt | None:
    """Read a line of a program's output.

    Returns:
        None if the line is none of these events.

    Raises:
        LineError: it is one of them, but lacks a value, or has one of another type.
    """
    if b"Received Message" not in line and b"PeerID" not in line:
        return None  # most lines, which need not be decoded
    try:
        said = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    match said:
        case {"msg": "PeerID"}:
            return Identity(_number(line, said, "node_id"), _text(line, said, "id"), _time(line, said))
        case {"msg": "Received Message"}:
            sender, topic = (value if isinstance(value := said.get(key), str) else None for key in ("from", "topic"))
            return Receipt(_number(line, said, "id"), _time(line, said), sender, topic)
    return None


class Placing:
    """Places the times that a program prints on the clock CLOCK_MONOTONIC.

    A time with 3 digits says no more than that the event was within that millisecond. Such an event is placed at the
    end of it, so that no message seems to arrive before its packets. Go leaves out zeros at the end of a time, so the
    most digits of any time so far count.

    Args:
        began_ns: the instant of the program's start (ns).
        epoch_offset_ns: CLOCK_REALTIME - CLOCK_MONOTONIC (ns).
    """

    def __init__(self, began_ns: int, epoch_offset_ns: int) -> None:
        self._began_ns = began_ns
        self._epoch_offset_ns = epoch_offset_ns
        self._resolution_ns = 1_000_000_000

    def place(self, time: PrintedTime, now_ns: int) -> int:
        """Return the instant of a time (ns).

        Args:
            time: the time.
            now_ns: the present instant, which is after the event (ns).

        Raises:
            LineError: the time is before the program's start or in the future.
        """
        self._resolution_ns = min(self._resolution_ns, time.resolution_ns)
        first_ns = time.epoch_ns - self._epoch_offset_ns
        last_ns = first_ns + self._resolution_ns - 1
        if last_ns < self._began_ns - TOLERANCE_NS or first_ns > now_ns + TOLERANCE_NS:
            off_s = (first_ns - now_ns) / 1e9
            raise LineError(f"printed a time {off_s:+.3f} s from now: not between its start and now on this machine")
        return max(self._began_ns, min(last_ns, now_ns))


def _number(line: bytes, said: dict[str, Any], key: str) -> int:
    """Return a value that is a natural number, as such or in decimal digits."""
    value = said.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS:
        return int(value)
    raise _wrong(line, f"expected a number in {key!r}")


def _text(line: bytes, said: dict[str, Any], key: str) -> str:
    value = said.get(key)
    if isinstance(value, str) and value:
        return value
    raise _wrong(line, f"expected text in {key!r}")


def _time(line: bytes, said: dict[str, Any]) -> PrintedTime:
    try:
        return parse_time(_text(line, said, "time"))
    except LineError:
        raise
    except ValueError as error:
        raise _wrong(line, str(error)) from None


def _wrong(line: bytes, problem: str) -> LineError:
    shown = line[:_SHOWN_BYTES].decode("ascii", "backslashreplace")
    more = "..." if len(line) > _SHOWN_BYTES else ""
    return LineError(f"printed the line {shown + more!r}: {problem}")
