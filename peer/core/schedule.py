"""The schedule: what happens to the nodes during a run, and so which nodes are up with which interests.

An *action* is a line of ``schedule.jsonl``: a publication, or a *change* of the nodes that are up or of their
interests. Its type determines its fields. Instants (``at_ns``) count from the workload's zero and are negative before
it. Actions of the same instant happen in the order of the schedule. docs/workload.md describes the effect of each.

``Population`` is the only code that applies changes. Code that needs another index of the same facts, such as the
subscribers of each topic, updates it with the results of ``Population.apply``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from peer.core.identifiers import MessageId, NodeId, TopicId


class _Scheduled(Struct, frozen=True, tag_field="action", tag=str.lower, gc=False):
    """The fields of all actions."""

    at_ns: int
    node: NodeId


class Publish(_Scheduled, frozen=True):
    """The node publishes a message.

    ``sequence``: how many messages it has published on the first topic before. ``expression``: as in
    ``peer.core.contract.Publish``.
    """

    message_id: MessageId
    topics: tuple[TopicId, ...]
    payload_bytes: int = 0
    sequence: int = 0
    expression: str = ""


class Join(_Scheduled, frozen=True):
    """The node, which is down, starts a new instance with these interests."""

    topics: tuple[TopicId, ...]


class Leave(_Scheduled, frozen=True):
    """The node leaves in order: it tells its neighbours."""


class Crash(_Scheduled, frozen=True):
    """The node's process ends without telling any node; its host closes the connections."""


class Vanish(_Scheduled, frozen=True):
    """The node's host vanishes with the node and closes no connection: a silent crash. It returns at the next join."""


class Subscribe(_Scheduled, frozen=True):
    """The node, which is up, subscribes to further topics."""

    topics: tuple[TopicId, ...]


class Unsubscribe(_Scheduled, frozen=True):
    """The node, which is up, unsubscribes from some of its topics."""

    topics: tuple[TopicId, ...]


Change: TypeAlias = Join | Leave | Crash | Vanish | Subscribe | Unsubscribe
Action: TypeAlias = Publish | Change


_LINE: dict[str, Any] = {
    "at_ns": 0, "node": 0, "action": "", "message_id": 0, "topics": (), "payload_bytes": 0, "sequence": 0
}  # fmt: skip
"""The fields of every line, in this order, with the values of fields that its action lacks. Plan hashes depend on it.

A line has an ``expression`` only if its action has one.
"""

_DECODER = msgspec.json.Decoder(Action)


def to_line(action: Action) -> dict[str, Any]:
    """Return the JSON object of an action."""
    fields: dict[str, Any] = msgspec.to_builtins(action)
    if not fields.get("expression"):
        fields.pop("expression", None)
    return _LINE | fields


def encode_schedule(schedule: Iterable[Action]) -> bytes:
    """Return the bytes of ``schedule.jsonl``: one line per action."""
    return b"".join(msgspec.json.encode(to_line(action)) + b"\n" for action in schedule)


def decode_schedule(content: bytes) -> list[Action]:
    """Return the actions of a ``schedule.jsonl``, in the order of its lines.

    Raises:
        msgspec.DecodeError: a line is not an action.
    """
    actions: list[Action] = _DECODER.decode_lines(content)
    return actions


class Turnover(NamedTuple):
    """The topics of the subscriptions of one node that a change begins and ends, each once."""

    begun: tuple[TopicId, ...]
    ended: tuple[TopicId, ...]


class Population:
    """The nodes that are up and their interests, while the changes of a schedule are applied one by one in order.

    It refuses a change that cannot happen: a join of a node that is up, any other change of a node that is down, a
    subscription that exists already, or the end of one that does not exist.

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
            The subscriptions of its node that it begins and ends.

        Raises:
            ValueError: the change cannot happen, for the reason in the error. Nothing has changed then.
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
        """Return why a change cannot happen now; empty if it can."""
        own = self.interests.get(change.node)
        if (own is not None) == isinstance(change, Join):
            return "is down" if own is None else "is up"
        if isinstance(change, Leave | Crash | Vanish):
            return ""
        if len(set(change.topics)) < len(change.topics):
            return f"names a topic twice in {list(change.topics)}"
        if own is None:  # a join, with any topics or none
            return ""
        if not change.topics:
            return "names no topics"
        is_end = isinstance(change, Unsubscribe)
        wrong = [topic for topic in change.topics if (topic in own) != is_end]
        return f"{'does not subscribe' if is_end else 'subscribes'} to {wrong}" if wrong else ""
