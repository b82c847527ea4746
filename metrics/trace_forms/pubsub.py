"""The trace events of go-libp2p-pubsub (``pb/trace.proto``), as lines of JSON or as delimited protobuf.

The structs have the fields of all versions up to v0.17. Earlier ones have ``topics`` where later ones have ``topic``,
no topic and sender in ``DeliverMessage``, and ``addPeer`` for what v0.17 calls ``onNewOutboundStream``. An event in
JSON is what Go's encoding/json makes of the struct: bytes in base64, the type as a number.

An RPC has messages, subscriptions and control messages. It becomes an event per message, and one for each of its kinds
of control messages, as our peers send one frame per kind (``peer.protocols.gossipsub.frames``).
"""

import gzip
import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from metrics.rundir import RunDir
from metrics.trace_forms import protobuf
from metrics.trace_forms.events import MOST_EVENT_BYTES, CutOffError, Event, Reading, TraceError, opened, read_lines
from metrics.trace_forms.exporting import describe_kind, describe_left_out, read_run, split_topics
from metrics.trace_forms.protobuf import Field, Schema
from peer.core.frames import Data, Subscriptions
from peer.protocols.gossipsub import frames

_WORDS: Final = {"id": "ID", "ids": "IDs", "rpc": "RPC"}


def _go_name(name: str) -> str:
    """Return a field's name as trace.proto and the JSON of Go have it."""
    first, *rest = name.split("_")
    return first + "".join(_WORDS.get(word, word.capitalize()) for word in rest)


class _Message(Struct, frozen=True, omit_defaults=True, rename=_go_name, gc=False):
    """A message of trace.proto; None = absent."""


class Control(_Message, frozen=True):
    """A control message of any kind."""

    topic: str | None = None
    message_ids: list[bytes] | None = None


class ControlMeta(_Message, frozen=True):
    """The control messages of an RPC."""

    ihave: list[Control] | None = None
    iwant: list[Control] | None = None
    graft: list[Control] | None = None
    prune: list[Control] | None = None
    idontwant: list[Control] | None = None


class MessageMeta(_Message, frozen=True):
    """A message in an RPC."""

    message_id: bytes | None = None
    topic: str | None = None
    topics: list[str] | None = None


class SubMeta(_Message, frozen=True):
    """A subscription or its end in an RPC."""

    subscribe: bool | None = None
    topic: str | None = None


class RPCMeta(_Message, frozen=True):
    """The content of an RPC."""

    messages: list[MessageMeta] | None = None
    subscription: list[SubMeta] | None = None
    control: ControlMeta | None = None


class Content(_Message, frozen=True):
    """The content of an event of any type."""

    message_id: bytes | None = None
    received_from: bytes | None = None
    send_to: bytes | None = None
    peer_id: bytes | None = None
    topic: str | None = None
    topics: list[str] | None = None
    reason: str | None = None
    proto: str | None = None
    meta: RPCMeta | None = None


class PubsubEvent(_Message, frozen=True):
    """``TraceEvent``: the type, and the content in the field of the type."""

    type: int | str | None = None
    peer_id: bytes | None = None
    timestamp: int | None = None
    publish_message: Content | None = None
    reject_message: Content | None = None
    duplicate_message: Content | None = None
    deliver_message: Content | None = None
    add_peer: Content | None = None
    on_new_outbound_stream: Content | None = None
    remove_peer: Content | None = None
    on_closed_outbound_stream: Content | None = None
    recv_rpc: Content | None = None
    send_rpc: Content | None = None
    drop_rpc: Content | None = None
    join: Content | None = None
    leave: Content | None = None
    graft: Content | None = None
    prune: Content | None = None


_TYPES: Final = (
    ("publish", "publish_message"),
    ("reject", "reject_message"),
    ("duplicate", "duplicate_message"),
    ("deliver", "deliver_message"),
    ("add_peer", "add_peer"),
    ("remove_peer", "remove_peer"),
    ("receive", "recv_rpc"),
    ("send", "send_rpc"),
    ("drop", "drop_rpc"),
    ("join", "join"),
    ("leave", "leave"),
    ("graft", "graft"),
    ("prune", "prune"),
)
"""Our event, and the field of its content; the index is the number of the type."""

_TYPE_OF: Final = {event: (number, name) for number, (event, name) in enumerate(_TYPES)}
_RPCS: Final = ("receive", "send", "drop")
_PER_TOPIC: Final = ("join", "leave", "graft", "prune")

_FIELDS: Final = [
    *((name, event) for event, name in _TYPES),
    ("on_new_outbound_stream", "add_peer"),
    ("on_closed_outbound_stream", "remove_peer"),
]

CONTROL_KINDS: Final = {
    "ihave": frames.Ihave.kind,
    "iwant": frames.Iwant.kind,
    "graft": frames.Graft.kind,
    "prune": frames.Prune.kind,
    "idontwant": frames.Idontwant.kind,
}
"""The control messages of an RPC, with the kind of our frame."""

_CONTROL_OF: Final = {kind: name for name, kind in CONTROL_KINDS.items()}

_KINDS: Final = frozenset((Data.kind, Subscriptions.kind, *_CONTROL_OF))
"""The frames that the form can describe."""


def _schema(**fields: tuple[Any, ...]) -> Schema:
    """Return a schema of the number and the other attributes of each field."""
    return {number: Field(_go_name(name), *others) for name, (number, *others) in fields.items()}


_MESSAGE: Final = _schema(message_id=(1, "bytes"), topics=(2, "text", True, "topic"))
_LINK: Final = _schema(peer_id=(1, "bytes"), topic=(2, "text"))
_IDS: Final = _schema(message_ids=(1, "bytes", True))
_TOPIC: Final = _schema(topic=(1, "text"))
_CONTROL_META: Final = _schema(
    ihave=(1, _schema(topic=(1, "text"), message_ids=(2, "bytes", True)), True),
    iwant=(2, _IDS, True),
    graft=(3, _TOPIC, True),
    prune=(4, _TOPIC, True),
    idontwant=(5, _IDS, True),
)
_RPC_META: Final = _schema(
    messages=(1, _MESSAGE, True),
    subscription=(2, _schema(subscribe=(1, "bool"), topic=(2, "text")), True),
    control=(3, _CONTROL_META),
)
_SENT: Final = _schema(send_to=(1, "bytes"), meta=(2, _RPC_META))
_TRACE_EVENT: Final = _schema(
    type=(1, "int"),
    peer_id=(2, "bytes"),
    timestamp=(3, "int"),
    publish_message=(4, _MESSAGE),
    reject_message=(
        5,
        _schema(message_id=(1, "bytes"), received_from=(2, "bytes"), reason=(3, "text"), topic=(4, "text")),
    ),
    duplicate_message=(6, _schema(message_id=(1, "bytes"), received_from=(2, "bytes"), topic=(3, "text"))),
    deliver_message=(7, _schema(message_id=(1, "bytes"), topic=(2, "text"), received_from=(3, "bytes"))),
    add_peer=(8, _schema(peer_id=(1, "bytes"), proto=(2, "text"))),
    remove_peer=(9, _schema(peer_id=(1, "bytes"))),
    recv_rpc=(10, _schema(received_from=(1, "bytes"), meta=(2, _RPC_META))),
    send_rpc=(11, _SENT),
    drop_rpc=(12, _SENT),
    join=(13, _TOPIC),
    leave=(14, _schema(topic=(2, "text"))),
    graft=(15, _LINK),
    prune=(16, _LINK),
)

_from_json: Final[Callable[[bytes], PubsubEvent]] = msgspec.json.Decoder(PubsubEvent, strict=False).decode


def to_json(event: PubsubEvent) -> bytes:
    """Return an event as a line of JSON."""
    return msgspec.json.encode(event) + b"\n"


def from_json(line: bytes) -> PubsubEvent:
    """Decode a line of JSON.

    Raises:
        ValueError: it is not such an event.
    """
    try:
        return _from_json(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_protobuf(event: PubsubEvent) -> bytes:
    """Return an event as protobuf, without its length."""
    return protobuf.encode(msgspec.to_builtins(event, builtin_types=(bytes,)), _TRACE_EVENT)


def from_protobuf(data: bytes) -> PubsubEvent:
    """Decode protobuf.

    Raises:
        ValueError: it is not such an event.
    """
    return msgspec.convert(protobuf.decode(data, _TRACE_EVENT), PubsubEvent)


def open_form(mapping: Path | None = None) -> Reading:
    """Return how the form is read."""
    return Reading(read_events, frozenset(_TYPE_OF))


def read_events(path: Path) -> Iterator[Event]:
    """Read a trace; the first bytes show whether it is JSON or protobuf.

    Events of unknown types are left out.

    Raises:
        TraceError: it is malformed; the place is the line, or the number of the event.
        CutOffError: the file ends inside an event.
    """
    with opened(path) as file:
        yield from _read_json(path, file) if _is_json(file) else _read_protobuf(path, file)


def _is_json(file: IO[bytes]) -> bool:
    """Return whether the first event is a JSON object: in protobuf, a field's key follows a length of 123 (``{``)."""
    start = cast(io.BufferedReader, file).peek(2)[:2]
    return start[:1] == b"{" and (start[1:] in b'"} \t\r\n')


def _read_json(path: Path, file: IO[bytes]) -> Iterator[Event]:
    for place, line in read_lines(path, file):
        try:
            event = from_json(line)
        except ValueError as error:
            if not line.endswith(b"\n"):
                raise CutOffError from None
            raise TraceError(place, f"expected a TraceEvent of go-libp2p-pubsub: {error}") from None
        yield from tell(event, place)


def _read_protobuf(path: Path, file: IO[bytes]) -> Iterator[Event]:
    number = 1
    try:
        for message in protobuf.read_delimited(file, MOST_EVENT_BYTES):
            yield from tell(from_protobuf(message), f"{path}: event {number}")
            number += 1
    except ValueError as error:
        raise TraceError(f"{path}: event {number}", f"expected a TraceEvent of go-libp2p-pubsub: {error}") from None


def tell(said: PubsubEvent, place: str) -> Iterator[Event]:
    """Yield our events for an event: none if its type is not known, several if it is an RPC.

    Raises:
        TraceError: it has no node or no time; the message begins with ``place``.
    """
    name, event = next(((name, event) for name, event in _FIELDS if getattr(said, name) is not None), ("", ""))
    if not name:
        return
    if not said.peer_id or said.timestamp is None:
        raise TraceError(place, "expected an event with peerID and timestamp")
    content: Content = getattr(said, name)
    ends = content.received_from or content.send_to or content.peer_id
    common = Event(event, said.timestamp, said.peer_id, None if ends == said.peer_id else ends)
    if event in _RPCS:
        yield from _tell_rpc(common, content.meta or RPCMeta())
    else:
        topics = _topics_of(content)
        yield replace(common, message=content.message_id, topics=topics, reason=content.reason)


def _tell_rpc(common: Event, meta: RPCMeta) -> Iterator[Event]:
    """Yield an event per message of an RPC, and per kind of its other parts."""
    for each in meta.messages or ():
        yield replace(common, message=each.message_id, topics=_topics_of(each), kind=Data.kind)
    if meta.subscription:
        yield replace(common, kind=Subscriptions.kind)
    if meta.control is not None:
        for name, kind in CONTROL_KINDS.items():
            if getattr(meta.control, name):
                yield replace(common, kind=kind)


def _topics_of(said: Content | MessageMeta) -> tuple[str, ...] | None:
    if said.topic is not None:
        return (said.topic,)
    return None if said.topics is None else tuple(said.topics)


def make(event: Event) -> PubsubEvent | None:
    """Return the event of go-libp2p-pubsub with the same content; None if there is none.

    Our traces do not have the content of a control frame: its message of that kind has no fields.
    """
    if event.event not in _TYPE_OF or (event.event == "reject" and event.message is None):
        return None
    number, name = _TYPE_OF[event.event]
    peer = event.peer
    match event.event:
        case "send" | "drop":
            content = Content(send_to=peer)
        case "receive" | "duplicate" | "deliver" | "reject":
            content = Content(received_from=event.node if peer is None else peer)
        case _:
            content = Content(peer_id=peer)
    if event.event in _RPCS:
        if peer is None or event.kind not in _KINDS:
            return None
        content = replace(content, meta=_make_meta(event))
    else:
        reason = event.reason if event.event == "reject" else None
        content = replace(content, message_id=event.message, reason=reason, **_topics(event))
    return PubsubEvent(number, event.node, event.ts_ns, **{name: content})


def _make_meta(event: Event) -> RPCMeta:
    if event.kind == Data.kind:
        return RPCMeta(messages=[MessageMeta(event.message, **_topics(event))])
    if event.kind == Subscriptions.kind:
        return RPCMeta(subscription=[SubMeta()])
    return RPCMeta(control=ControlMeta(**{_CONTROL_OF[event.kind or 0]: [Control()]}))


def _topics(event: Event) -> dict[str, Any]:
    """Return the fields for the topics: ``topic`` for one, ``topics`` (of early versions) for several."""
    topics = event.topics or ()
    return {"topic": topics[0]} if len(topics) == 1 else {"topics": list(topics) or None}


def write_nodes(run: RunDir, folder: Path, suffix: str, encode: Callable[[PubsubEvent], bytes]) -> list[str]:
    """Write a trace per node of a run.

    Args:
        run: the run.
        folder: the folder of the traces.
        suffix: the end of the files' names, after the node's number; ``.gz`` = compress them.
        encode: returns an event as bytes.

    Returns:
        A sentence for everything that the form cannot hold.
    """
    left_out: Counter[str] = Counter()
    for node in run.nodes:
        path = folder / f"{node}{suffix}"
        with gzip.open(path, "wb", compresslevel=6) if suffix.endswith(".gz") else path.open("wb") as file:
            file.writelines(encode(event) for event in _make_all(read_run(run, node, left_out), left_out))
    return describe_left_out(left_out)


def _make_all(events: Iterator[Event], left_out: Counter[str]) -> Iterator[PubsubEvent]:
    for event in events:
        for each in split_topics(event) if event.event in _PER_TOPIC else (event,):
            made = make(each)
            if made is None:
                left_out[describe_kind(event)] += 1
            else:
                yield made
