"""The recording of a node's events, from which each of its instances can be replayed.

A recording is a stream of msgpack arrays, each after its length (4 bytes, big-endian). ``[instance, topics]`` begins an
instance. ``[now_ns, event, fields, digest]`` is an event with its fields in order and a checksum over all effects that
the node returned. Frames are encoded by ``peer.wire``, and directories as lists of (node, topics).
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from peer import wire
from peer.core import contract
from peer.core.contract import Directory, Effect, Event, FrameReceived, Node, PeerInfo, PeerList
from peer.core.node import StatefulNode
from peer.instances.lifecycle import make_node
from peer.instances.spec import NodeSpec

BUFFER_BYTES = 1 << 16
_LENGTH_BYTES = 4
_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The exceptions of nodes and their constructors for events and parameters that no driver gives them."""


class Recorder:
    """Writes the recording of one peer's instances; ``resume``: append to the file."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self._file = path.open("ab" if resume else "wb", buffering=BUFFER_BYTES)
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_plain)

    def watch(self, node: StatefulNode, instance: int) -> Node:
        self._write([instance, sorted(node.state.topics)])
        return _Recorded(node, self)

    def note(self, now_ns: int, event: Event, effects: list[Effect]) -> None:
        """Record an event of a node, and a checksum of its effects.

        Args:
            now_ns: the instant of the event (ns).
            event: the event.
            effects: the effects.
        """
        self._write([now_ns, type(event).__name__, _fields(event), digest(effects)])

    def close(self) -> None:
        self._file.close()

    def _write(self, entry: list[Any]) -> None:
        content = self._encoder.encode(entry)
        self._file.write(len(content).to_bytes(_LENGTH_BYTES, "big") + content)


class _Recorded:
    """A node whose events are recorded."""

    def __init__(self, node: Node, recorder: Recorder) -> None:
        self._node = node
        self._recorder = recorder

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        effects = self._node.handle(now_ns, event)
        self._recorder.note(now_ns, event, effects)
        return effects


class Difference(Struct, frozen=True):
    """The first event at which a replay differs from the recording: its index (from 0), its instant, and the event."""

    place: int
    now_ns: int
    event: Event
    effects: list[Effect]


class Replay(Struct, frozen=True):
    """The result of a replay; ``difference`` is None if every effect was the recorded one."""

    instances: int
    events: int
    difference: Difference | None = None


def replay(path: Path, spec: NodeSpec) -> Replay:
    """Give a node of the same specification the recorded events.

    Raises:
        OSError: there is no such recording.
        ValueError: it is not a recording, or not of this node; the message names the entry.
    """
    replayed = [0, 0]
    try:
        return _replay(path, spec, replayed)
    except _FAULTS as error:
        what = f"{type(error).__name__}: " if not isinstance(error, ValueError) else ""
        raise ValueError(f"{path}: entry {sum(replayed)}: {what}{error}") from error


def _replay(path: Path, spec: NodeSpec, replayed: list[int]) -> Replay:
    """Do what ``replay`` does, and count the instances and events in ``replayed``."""
    node: Node | None = None
    for entry in _entries(path):
        instances, events = replayed
        match entry:
            case [int() as instance, list() as topics]:
                node = make_node(spec, instance, tuple(topics))
                replayed[0] += 1
            case [int() as now_ns, str() as name, list() as fields, int() as recorded] if node is not None:
                event = _event(name, fields)
                effects = node.handle(now_ns, event)
                if digest(effects) != recorded:
                    return Replay(instances, events, Difference(events, now_ns, event, effects))
                replayed[1] += 1
            case _:
                raise ValueError("not an entry of a recording")
    instances, events = replayed
    return Replay(instances, events)


def digest(effects: list[Effect]) -> int:
    """Return a checksum over effects. It is equal for equal effects in the same order."""
    content = [[type(effect).__name__, _fields(effect)] for effect in effects]
    return zlib.crc32(msgspec.msgpack.encode(content, enc_hook=_plain))


def _fields(value: Struct) -> list[Any]:
    if isinstance(value, FrameReceived | contract.Send):
        return [value.peer, wire.encode(value.frame)]
    if isinstance(value, contract.SendEach):
        return [value.peers, wire.encode(value.frame)]
    return list(msgspec.structs.astuple(value))


def _plain(value: object) -> object:
    if isinstance(value, Directory):
        return [(info.node, info.topics) for info in value]
    raise TypeError(f"a recording cannot contain a {type(value).__name__}")


def _entries(path: Path) -> Iterator[Any]:
    """Yield the entries of a file, except one that is cut off at the end."""
    decode = msgspec.msgpack.Decoder().decode
    content = path.read_bytes()
    start = 0
    while (begin := start + _LENGTH_BYTES) < len(content):
        start = begin + int.from_bytes(content[start:begin], "big")
        if start > len(content):
            return
        try:
            yield decode(content[begin:start])
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None


def _event(name: str, fields: list[Any]) -> Event:
    kind = getattr(contract, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise ValueError(f"no event is called {name}")
    if kind is FrameReceived:
        peer, content = fields
        [(_, _, frame)] = wire.Decoder().feed(content)
        return FrameReceived(peer, frame)
    if kind is PeerList:
        [entries] = fields
        return PeerList(
            Directory(PeerInfo(node, None if topics is None else tuple(topics)) for node, topics in entries)
        )
    named = dict(zip(kind.__struct_fields__, fields, strict=True))
    return msgspec.convert(named, kind, strict=False)
