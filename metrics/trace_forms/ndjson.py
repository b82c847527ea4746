"""Lines of JSON of any program, read with a mapping: a TOML file that says which key holds what.

```toml
time = "time"            # the key of the instant
time_unit = "rfc3339"    # or s, ms, us, ns since the epoch
event = "msg"            # the key of the event's name
node = "node"            # the key of the node's name; without it, a file's name up to the first point is the node

[events."Received Message"]
is = "copy"
message = "id"
topic = "topic"
peer = "from"
```

Keys inside objects are written with points (``fields.id``). ``is`` is one of ``NEEDS``. Lines that are not JSON
objects, and events that the mapping does not name, are left out, since programs log other things, too.
"""

import math
import os
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metrics.trace_forms.events import IDENTITY, Event, Reading, TraceError, opened, read_lines
from peer.rfc3339 import parse_time

MOST_MAPPING_BYTES: Final = 1 << 16

COPY: Final = "copy"
"""A copy of a message that a node read: the first one at a node is ``deliver``, later ones are ``duplicate``."""

NEEDS: Final = {
    "publish": ("message", "topic"),
    "deliver": ("message", "topic"),
    "duplicate": ("message",),
    COPY: ("message", "topic"),
    "reject": ("message",),
    "join": ("topic",),
    "leave": ("topic",),
    "graft": ("peer", "topic"),
    "prune": ("peer", "topic"),
    "add_peer": ("peer",),
    "remove_peer": ("peer",),
    IDENTITY: ("peer",),
}
"""The possible events, with the keys that their mappings must have. ``identity`` reports another name of the node."""

_FIELDS: Final = ("message", "topic", "peer", "reason", "len_bytes")
_UNITS_NS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


class EventMapping(Struct, frozen=True, forbid_unknown_fields=True):
    """Where an event's fields are.

    Attributes:
        is_: one of ``NEEDS``.
        message: the key of the message's name.
        topic: the key of the topic's name.
        peer: the key of the name of the other node.
        reason: the key of the reason of a ``reject``.
        len_bytes: the key of the payload's length.
    """

    is_: str = msgspec.field(name="is")
    message: str | None = None
    topic: str | None = None
    peer: str | None = None
    reason: str | None = None
    len_bytes: str | None = None

    def __post_init__(self) -> None:
        if self.is_ not in NEEDS:
            raise ValueError(f"is = {self.is_!r}: expected one of {', '.join(NEEDS)}")
        for name in NEEDS[self.is_]:
            if getattr(self, name) is None:
                raise ValueError(f"an event that is {self.is_} needs the key {name}")


class Mapping(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping; for its keys see the module's docstring."""

    time: str
    event: str
    events: dict[str, EventMapping]
    time_unit: Literal["rfc3339", "s", "ms", "us", "ns"] = "rfc3339"
    node: str | None = None

    @property
    def told(self) -> frozenset[str]:
        """Our events that traces with this mapping can have."""
        kinds = {mapping.is_ for mapping in self.events.values()}
        return frozenset(kinds | ({"deliver", "duplicate"} if COPY in kinds else set()))


def read_mapping(path: Path) -> Mapping:
    """Read a mapping.

    Raises:
        TraceError: it cannot be read, or is not a mapping.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_MAPPING_BYTES + 1)
        if len(content) > MOST_MAPPING_BYTES:
            raise ValueError(f"expected at most {MOST_MAPPING_BYTES:,} bytes")
        return msgspec.convert(tomllib.loads(content.decode()), Mapping)
    except OSError as error:
        raise TraceError(str(path), error.strerror or "cannot be read") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(str(path), str(error)) from None


def open_form(path: Path | None) -> Reading:
    """Return how traces with a mapping are read.

    Raises:
        TraceError: the mapping is not given, cannot be read, or is not a mapping.
    """
    if path is None:
        raise TraceError("--mapping", "name the TOML file that says where the fields are")
    mapping = read_mapping(path)

    return Reading(partial(_read_events, mapping), mapping.told)


def _read_events(mapping: Mapping, path: Path) -> Iterator[Event]:
    read: set[tuple[bytes, bytes | None]] = set()  # the node and message of each copy
    with opened(path) as file:
        for place, line in read_lines(path, file):
            event = _read_line(mapping, place, line, path.name.partition(".")[0])
            if event is not None and event.event == COPY:
                copy = event.node, event.message
                event = replace(event, event="duplicate" if copy in read else "deliver")
                read.add(copy)
            if event is not None:
                yield event


def _read_line(mapping: Mapping, place: str, line: bytes, file_name: str) -> Event | None:
    """Return the event of a line; None if it has no event that the mapping names.

    Raises:
        TraceError: the event lacks a key, or a value is malformed.
    """
    try:
        said = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    name = _look_up(said, mapping.event)
    where = mapping.events.get(name) if isinstance(name, str) else None
    if where is None:
        return None
    try:
        return _make_event(mapping, where, said, file_name)
    except ValueError as error:
        raise TraceError(place, f"the event {name!r}: {error}") from None


def _make_event(mapping: Mapping, where: EventMapping, said: object, file_name: str) -> Event:
    found = {field: _text(said, getattr(where, field)) for field in _FIELDS}
    node = file_name if mapping.node is None else _text(said, mapping.node)
    if node is None:
        raise ValueError(f"it has no {mapping.node}")
    for field in NEEDS[where.is_]:
        if found[field] is None:
            raise ValueError(f"it has no {getattr(where, field)}")
    peer, message = (None if (text := found[field]) is None else text.encode() for field in ("peer", "message"))
    length, topic = found["len_bytes"], found["topic"]
    return Event(
        where.is_,
        _instant(_look_up(said, mapping.time), mapping.time_unit),
        os.fsencode(node),  # the name of a file may be no text
        peer,
        message,
        topics=None if topic is None else (topic,),
        reason=found["reason"],
        len_bytes=None if length is None else int(length),
    )


def _look_up(said: object, key: str) -> object:
    """Return the value of a key, with points between the keys of nested objects; None = it does not exist."""
    for part in key.split("."):
        said = said.get(part) if isinstance(said, dict) else None
    return said


def _text(said: object, key: str | None) -> str | None:
    """Return the value of a key as text.

    Raises:
        ValueError: it is neither text nor an integer.
    """
    value = None if key is None else _look_up(said, key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"expected text or an integer in {key}")
    return str(value)


def _instant(value: object, unit: str) -> int:
    """Return an instant in ns since the epoch.

    Raises:
        ValueError: it is not an instant in this unit.
    """
    if unit == "rfc3339":
        if not isinstance(value, str):
            raise ValueError(f"expected a time as in RFC 3339, got {str(value)[:60]!r}")
        return parse_time(value).epoch_ns
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"expected a number of {unit} since the epoch, got {str(value)[:60]!r}")
    return round(value * _UNITS_NS[unit])
