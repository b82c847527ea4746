"""The schedule: what happens to the nodes during a run, and who is up with which interests because of it.

An *action* is a line of ``schedule.jsonl``: a publication, or a *change* of who is up or of what a node subscribes to.
Its type says which fields it has. Instants (``at_ns``) count from the workload's zero and are negative before it.
Actions of the same instant happen in the order of the schedule. docs/workload.md says what each does to a node.

``Population`` is the one fold over changes. Code that needs another index of the same facts, such as the subscribers of
each topic, keeps it from what ``Population.apply`` returns.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from peer.core.identifiers import MessageId, NodeId, TopicId


class _Scheduled(Struct, frozen=True, tag_field="action", tag=str.lower, gc=False):
    """What all actions have."""

    at_ns: int
    node: NodeId


class Publish(_Scheduled, frozen=True):
    """The node publishes.

    ``sequence``: how many messages it has published on the first topic before. ``expression``: see
    ``peer.core.contract.Publish``.
    """

    message_id: MessageId
    topics: tuple[TopicId, ...]
    payload_bytes: int = 0
    sequence: int = 0
    expression: str = ""


class Join(_Scheduled, frozen=True):
    """A new instance of the node, which is down, starts with these interests."""

    topics: tuple[TopicId, ...]


class Leave(_Scheduled, frozen=True):
    """The node ends in order: it tells its neighbours."""


class Crash(_Scheduled, frozen=True):
    """The node's process ends without telling anybody; its host closes the connections."""


class Vanish(_Scheduled, frozen=True):
    """The node's host vanishes with the node and closes no connection: a silent crash. It is back at the next join."""


class Subscribe(_Scheduled, frozen=True):
    """The node, which is up, subscribes to further topics."""

    topics: tuple[TopicId, ...]


class Unsubscribe(_Scheduled, frozen=True):
    """The node, which is up, gives up some of its topics."""

    topics: tuple[TopicId, ...]


Change: TypeAlias = Join | Leave | Crash | Vanish | Subscribe | Unsubscribe
Action: TypeAlias = Publish | Change


_LINE: dict[str, Any] = {
    "at_ns": 0, "node": 0, "action": "", "message_id": 0, "topics": (), "payload_bytes": 0, "sequence": 0
}  # fmt: skip
"""The fields of every line, in this order, with the values of those that its action lacks. Plan hashes depend on it.

A line has an ``expression`` only if its action has one.
"""

_DECODER = msgspec.json.Decoder(Action)


def to_line(action: Action) -> dict[str, Any]:
    """The object that stands for an action in JSON."""
    fields: dict[str, Any] = msgspec.to_builtins(action)
    if not fields.get("expression"):
        fields.pop("expression", None)
    return _LINE | fields


def encode_schedule(schedule: Iterable[Action]) -> bytes:
    """The bytes of ``schedule.jsonl``: one line per action."""
    return b"".join(msgspec.json.encode(to_line(action)) + b"\n" for action in schedule)


def decode_schedule(content: bytes) -> list[Action]:
    """The actions of a ``schedule.jsonl``, in the order of its lines.

    Raises:
        msgspec.DecodeError: a line is no action.
    """
    actions: list[Action] = _DECODER.decode_lines(content)
    return actions


class Turnover(NamedTuple):
    """The subscriptions of one node that a change begins and those that it ends: topics, each once."""

    begun: tuple[TopicId, ...]
    ended: tuple[TopicId, ...]


class Population:
    """Who is up, with which interests, while the changes of a schedule are applied one by one in their order.

    A change that cannot happen is refused: a join of a node that is up, any other change of one that is down, a
    subscription that exists already, the end of one that does not exist.

    Args:
        interests: the nodes that are up at the start, each with its topics.

    Attributes:
        interests: the nodes that are up now, each with its topics.
    """

    def __init__(self, interests: Mapping[NodeId, Iterable[TopicId]]) -> None:
        self.interests = {node: frozenset(topics) for node, topics in interests.items()}

    def apply(self, change: Change) -> Turnover:
        """Apply the next change.

        Returns:
            The subscriptions of its node that begin and end with it.

        Raises:
            ValueError: it cannot happen; says why. Nothing has changed then.
        """
        if problem := self._problem(change):
            raise ValueError(f"node {change.node} {problem} at {change.at_ns / 1e9:g} s")
        if isinstance(change, Leave | Crash | Vanish):
            return Turnover((), tuple(sorted(self.interests.pop(change.node))))
        topics = frozenset(change.topics)
        if isinstance(change, Unsubscribe):
            self.interests[change.node] -= topics
            return Turnover((), change.topics)
        if isinstance(change, Subscribe):
            topics = self.interests[change.node] | topics
        self.interests[change.node] = topics
        return Turnover(change.topics, ())

    def _problem(self, change: Change) -> str:
        """Why a change cannot happen now; empty if it can."""
        own = self.interests.get(change.node)
        if (own is not None) == isinstance(change, Join):
            return "is down" if own is None else "is up"
        if isinstance(change, Leave | Crash | Vanish):
            return ""
        if len(set(change.topics)) < len(change.topics):
            return f"names a topic twice in {list(change.topics)}"
        if own is None:  # it joins, with any topics or none
            return ""
        if not change.topics:
            return "names no topics"
        is_end = isinstance(change, Unsubscribe)
        wrong = [topic for topic in change.topics if (topic in own) != is_end]
        return f"{'does not subscribe' if is_end else 'subscribes'} to {wrong}" if wrong else ""
