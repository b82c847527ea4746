"""``params.json`` of gossipsub-interop: one script of instructions, which every node carries out from top to bottom.

Each type is an instruction, with the names of its keys in ``_KEYS``. ``decode_script`` reads a script, and
``check_script`` judges it for a number of nodes. ``encode_script`` writes one that the programs in Go, Rust, Java and
Nim read: durations are integers, since Go takes no other numbers, and a key without a value is left out, since the
program in Java refuses keys that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

LEAST_MESSAGE_BYTES: Final = 8
"""The first 8 bytes of a message are its ``messageID``."""

Node = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Topic = Annotated[str, Meta(min_length=1, max_length=1024)]
Seconds = Annotated[int, Meta(ge=0, le=604_800)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Factor = Annotated[float, Meta(ge=0, le=1)]
Nanoseconds = Number

_KEYS: Final = {
    "connect_to": "connectTo",
    "delay_s": "delaySeconds",
    "eager_push_parts": "eagerPushParts",
    "elapsed_s": "elapsedSeconds",
    "group_id": "groupID",
    "message_id": "messageID",
    "node_id": "nodeID",
    "parameters": "gossipSubParams",
    "publish_to": "publishToNodeIDs",
    "size_bytes": "messageSizeBytes",
    "topic_id": "topicID",
}
"""The names of keys in ``params.json`` by the names of fields, where they differ."""


class ScriptError(ValueError):
    """A script is not one that programs can carry out. The message names the instruction by its place."""


class Parameters(Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of GossipSub by the names that go-libp2p-pubsub gives them. Durations are in ns."""

    D: Count | UnsetType = UNSET
    Dlo: Count | UnsetType = UNSET
    Dhi: Count | UnsetType = UNSET
    Dscore: Count | UnsetType = UNSET
    Dout: Count | UnsetType = UNSET
    HistoryLength: Count | UnsetType = UNSET
    HistoryGossip: Count | UnsetType = UNSET
    Dlazy: Count | UnsetType = UNSET
    GossipFactor: Factor | UnsetType = UNSET
    GossipRetransmission: Count | UnsetType = UNSET
    HeartbeatInitialDelay: Nanoseconds | UnsetType = UNSET
    HeartbeatInterval: Nanoseconds | UnsetType = UNSET
    SlowHeartbeatWarning: Factor | UnsetType = UNSET
    FanoutTTL: Nanoseconds | UnsetType = UNSET
    PrunePeers: Count | UnsetType = UNSET
    PruneBackoff: Nanoseconds | UnsetType = UNSET
    UnsubscribeBackoff: Nanoseconds | UnsetType = UNSET
    Connectors: Count | UnsetType = UNSET
    MaxPendingConnections: Count | UnsetType = UNSET
    ConnectionTimeout: Nanoseconds | UnsetType = UNSET
    DirectConnectTicks: Count | UnsetType = UNSET
    DirectConnectInitialDelay: Nanoseconds | UnsetType = UNSET
    OpportunisticGraftTicks: Count | UnsetType = UNSET
    OpportunisticGraftPeers: Count | UnsetType = UNSET
    GraftFloodThreshold: Nanoseconds | UnsetType = UNSET
    MaxIHaveLength: Count | UnsetType = UNSET
    MaxIHaveMessages: Count | UnsetType = UNSET
    MaxIDontWantLength: Count | UnsetType = UNSET
    MaxIDontWantMessages: Count | UnsetType = UNSET
    IWantFollowupTime: Nanoseconds | UnsetType = UNSET
    IDontWantMessageThreshold: Count | UnsetType = UNSET
    IDontWantMessageTTL: Count | UnsetType = UNSET


class _Instruction(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", rename=_KEYS):
    """The settings of all instructions."""


class Begin(_Instruction, frozen=True, tag="initGossipSub"):
    """Begin with these parameters. Each node does this once, before all else."""

    parameters: Parameters


class Connect(_Instruction, frozen=True, tag="connect"):
    """Open connections to these nodes."""

    connect_to: tuple[Node, ...]


class IfNodeIDEquals(_Instruction, frozen=True, tag="ifNodeIDEquals"):
    """Carry out an instruction if this is the node."""

    node_id: Node
    instruction: Instruction


class WaitUntil(_Instruction, frozen=True, tag="waitUntil"):
    """Go on when this much time has passed since the program's start. Messages are still forwarded."""

    elapsed_s: Seconds


class SubscribeToTopic(_Instruction, frozen=True, tag="subscribeToTopic"):
    """Subscribe to a topic; ``partial``: ask for partial messages."""

    topic_id: Topic
    partial: bool | UnsetType = UNSET


class SetTopicValidationDelay(_Instruction, frozen=True, tag="setTopicValidationDelay"):
    """Take this long to validate each message of a topic."""

    topic_id: Topic
    delay_s: Annotated[float, Meta(ge=0, le=3600)]


class Publish(_Instruction, frozen=True, tag="publish"):
    """Publish a message."""

    message_id: Number
    size_bytes: Annotated[int, Meta(ge=LEAST_MESSAGE_BYTES, le=1_000_000)]
    topic_id: Topic


class AddPartialMessage(_Instruction, frozen=True, tag="addPartialMessage"):
    """Have some of the 8 parts of a partial message: those of a bitmap."""

    topic_id: Topic
    group_id: Number
    parts: Annotated[int, Meta(ge=0, le=255)]
    eager_push_parts: Annotated[int, Meta(ge=0, le=255)] | UnsetType = UNSET


class PublishPartial(_Instruction, frozen=True, tag="publishPartial"):
    """Publish the parts that this node has, to some nodes or to the mesh."""

    topic_id: Topic
    group_id: Number
    publish_to: tuple[Node, ...] | UnsetType = UNSET


Instruction: TypeAlias = (
    Begin
    | Connect
    | IfNodeIDEquals
    | WaitUntil
    | SubscribeToTopic
    | SetTopicValidationDelay
    | Publish
    | AddPartialMessage
    | PublishPartial
)


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``params.json``."""

    script: tuple[Instruction, ...]


class Step(NamedTuple):
    """What one node does.

    Attributes:
        place: the number of the instruction in the script, from 0.
        at_s: the time since the program's start at which the node does it, at the earliest (s).
        node: the node.
        instruction: no ``IfNodeIDEquals`` and no ``WaitUntil``.
    """

    place: int
    at_s: int
    node: int
    instruction: Instruction


class Publication(NamedTuple):
    """A publication of a script: by which node, and when (s since its program's start)."""

    at_s: int
    node: int
    publish: Publish


def decode_script(content: bytes) -> Script:
    """Read a ``params.json``.

    Raises:
        ScriptError: it is not a script; the message names the place.
    """
    try:
        return msgspec.json.decode(content, type=Script)
    except msgspec.ValidationError as error:
        problem, _, place = " ".join(str(error).split()).rpartition(" - at ")
        raise ScriptError(f"{place.strip('`')}: {problem}" if problem else place) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScriptError(str(error)) from None


def encode_script(script: Script) -> bytes:
    """Return the bytes of a ``params.json``."""
    return msgspec.json.encode(script) + b"\n"


def walk(script: Script, nodes: int) -> Iterator[Step]:
    """Yield what each node does, in the order of the script."""
    elapsed_s = [0] * nodes
    for place, _, affected, instruction in _unfold(script, nodes):
        for node in affected:
            if isinstance(instruction, WaitUntil):
                elapsed_s[node] = max(elapsed_s[node], instruction.elapsed_s)
            else:
                yield Step(place, elapsed_s[node], node, instruction)


def find_ends(script: Script, nodes: int) -> tuple[int, ...]:
    """Return when each node has carried out its last instruction, at the earliest (s since its program's start)."""
    ends_s = [0] * nodes
    for _, _, affected, instruction in _unfold(script, nodes):
        if isinstance(instruction, WaitUntil):
            for node in affected:
                ends_s[node] = max(ends_s[node], instruction.elapsed_s)
    return tuple(ends_s)


def list_publications(script: Script, nodes: int) -> list[Publication]:
    """Return the publications in the order of time, and at the same time in the order of the script."""
    found = [
        Publication(step.at_s, step.node, step.instruction)
        for step in walk(script, nodes)
        if isinstance(step.instruction, Publish)
    ]
    return sorted(found, key=lambda publication: publication.at_s)


def check_script(script: Script, nodes: int) -> None:
    """Check that some nodes can carry out a script.

    Raises:
        ScriptError: they cannot; the message names the instruction.
    """
    begun: set[int] = set()
    published: dict[int, int] = {}
    for place, named, _, instruction in _unfold(script, nodes):
        for node in sorted({*named, *_nodes_in(instruction)}):
            if node >= nodes:
                raise _wrong(place, f"names node {node}, but nodes are 0 to {nodes - 1}")
        if isinstance(instruction, Publish) and named == ():
            raise _wrong(place, "every node would publish the same message; use ifNodeIDEquals")
    for place, _, node, instruction in walk(script, nodes):
        if (node in begun) == isinstance(instruction, Begin):
            raise _wrong(place, f"node {node} needs initGossipSub once, before all other instructions")
        begun.add(node)
        if isinstance(instruction, Connect) and node in instruction.connect_to:
            raise _wrong(place, f"node {node} would connect to itself")
        if isinstance(instruction, Publish):
            first = published.setdefault(instruction.message_id, place)
            if first != place:
                raise _wrong(place, f"messageID {instruction.message_id} is published by script[{first}], too")
    if len(begun) < nodes:
        missing = next(node for node in range(nodes) if node not in begun)
        raise ScriptError(f"node {missing} has no initGossipSub")


def delay_connections(script: Script, nodes: int, at_s: int) -> Script:
    """Return the script with a wait before the first instruction that opens connections.

    All programs are started at the same time, but none listens at once, and some end if a connection is refused.

    Args:
        script: the script.
        nodes: the number of nodes.
        at_s: the time since the start before which no node may connect (s).

    Returns:
        The same script if its nodes wait as long without that.
    """
    early = [step.place for step in walk(script, nodes) if isinstance(step.instruction, Connect) and step.at_s < at_s]
    if not early:
        return script
    place = min(early)
    return Script((*script.script[:place], WaitUntil(at_s), *script.script[place:]))


def _unfold(script: Script, nodes: int) -> Iterator[tuple[int, tuple[int, ...], range, Instruction]]:
    """Yield the instructions without their conditions.

    Yields:
        The place of the instruction, the nodes that its conditions name, the nodes that carry it out, the instruction.
    """
    for place, instruction in enumerate(script.script):
        named: list[int] = []
        while isinstance(instruction, IfNodeIDEquals):
            named.append(instruction.node_id)
            instruction = instruction.instruction
        affected = range(nodes) if not named else range(0)
        if len(set(named)) == 1 and named[0] < nodes:
            affected = range(named[0], named[0] + 1)
        yield place, tuple(named), affected, instruction


def _nodes_in(instruction: Instruction) -> tuple[int, ...]:
    """Return the nodes that an instruction names, without its conditions."""
    if isinstance(instruction, Connect):
        return instruction.connect_to
    if isinstance(instruction, PublishPartial) and instruction.publish_to is not UNSET:
        return instruction.publish_to
    return ()


def _wrong(place: int, problem: str) -> ScriptError:
    return ScriptError(f"script[{place}]: {problem}")
