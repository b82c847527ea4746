"""Watches messages with expressions in a simulation: which members, relays and other nodes they reach."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from metrics.measures.groups import GroupMessages, Newcomers
from metrics.measures.measure import Values
from metrics.measures.steiner import MOST_HOSTS, Matrix, bound_tree, shortest_paths
from peer.core.addressing.keywords import find_members, terms_of_topics
from peer.core.bitset import Bitset, members
from peer.core.contract import NodeId, TopicId
from peer.trace import TraceEvent

Delay = Callable[[int, int], int]
"""(source, destination) -> one-way delay in ns."""


Rate = Callable[[int, tuple[int, ...]], float]
"""See ``peer.protocols.description.Description.false_positive_rate``; without the parameters."""


class GroupMessage(Struct):
    """A message with an expression, among honest nodes.

    ``group``: the members at the publication. ``others``: the nodes that were up then, without members and publisher.
    ``predicted``: the false positives that the protocol predicts among the others; nan = none.
    ``newcomers``: see ``metrics.measures.groups.Newcomers``.
    ``reached``, ``latecomers``, ``false_positives`` and ``relays``: see ``metrics.measures.groups.GroupMessages``.
    """

    expression: str
    publisher: NodeId
    group: Bitset
    others: Bitset
    predicted: float
    reached: Bitset = 0
    latecomers: Bitset = 0
    false_positives: Bitset = 0
    relays: Bitset = 0
    newcomers: Bitset = 0
    copies: int = 0
    delay_ns: int = 0
    links: list[int] = field(default_factory=list)  # of each copy: the link's nodes, as one number

    def meet(self, node: NodeId, subscribers: Mapping[TopicId, Bitset]) -> None:
        """Take a node that has joined, with its topics among the subscribers, soon after the publication."""
        own = 1 << node
        if node != self.publisher and not (self.group | self.others) & own:
            self.newcomers |= find_members(self.expression, subscribers) & own

    def receive(self, event: TraceEvent, subscribers: Mapping[TopicId, Bitset], delay_ns: int) -> None:
        """Take a copy that a node received: an event ``deliver``, ``relay`` or ``duplicate`` that names the sender.

        Args:
            event: what the node traced.
            subscribers: of each topic at this instant.
            delay_ns: the one-way delay of the copy's link.
        """
        own = 1 << event.node
        self.copies += 1
        self.delay_ns += delay_ns
        assert event.peer is not None, "copies have a sender"
        self.links.append(min(event.node, event.peer) << 32 | max(event.node, event.peer))
        if event.node == self.publisher:
            return
        if event.event == "relay":
            self.relays |= own & ~(self.group | self.latecomers | self.false_positives)
        elif event.event == "deliver":
            self.relays &= ~own
            if self.group & own:
                self.reached |= own
            elif find_members(self.expression, subscribers) & own:
                self.latecomers |= own
            else:
                self.false_positives |= own


def sum_up_groups(
    messages: Sequence[GroupMessage], sent: "Sequence[array[int]]", honest: Sequence[NodeId], lengths: Matrix | None
) -> GroupMessages:
    """Return what measures of some messages read.

    Args:
        messages: the messages.
        sent: for some of them together, by node: how many copies it sent; an array may end early.
        honest: the nodes that count.
        lengths: of ``shortest_paths``; None = no bounds.
    """

    def count(name: str) -> Values:
        return np.array([getattr(message, name).bit_count() for message in messages], np.int64)

    bounds = [float("nan") if lengths is None else _bound(message, lengths) for message in messages]
    return GroupMessages(
        members=count("group"),
        reached=count("reached"),
        latecomers=count("latecomers"),
        false_positives=count("false_positives"),
        false_positives_predicted=np.array([message.predicted for message in messages]),
        relays=count("relays"),
        others=count("others"),
        copies=np.array([message.copies for message in messages], np.int64),
        delay_ms=np.array([message.delay_ns / 1e6 for message in messages]),
        bound_ms=np.array(bounds),
        sent=np.array([sum(part[node] for part in sent if node < len(part)) for node in honest], np.int64),
        expressions=_count_expressions(messages),
    )


def count_newcomers(messages: Sequence[GroupMessage]) -> Newcomers:
    """Return the newcomers of some messages, and those that got them."""
    return Newcomers(
        sum(message.newcomers.bit_count() for message in messages),
        sum((message.newcomers & message.latecomers).bit_count() for message in messages),
    )


def _count_expressions(messages: Sequence[GroupMessage]) -> Values:
    """Of each link that carried copies, of how many different expressions they were."""
    links: dict[str, list[Values]] = {}
    for message in messages:
        links.setdefault(message.expression, []).append(np.array(message.links, np.int64))
    used = [np.unique(np.concatenate(parts)) for parts in links.values()]
    return np.unique(np.concatenate(used), return_counts=True)[1] if used else np.empty(0, np.int64)


def _bound(message: GroupMessage, lengths: Matrix) -> float:
    return bound_tree(lengths, [message.publisher, *members(message.reached)])


def predict(rate: Rate, expression: str, others: Bitset, subscribers: Mapping[TopicId, Bitset]) -> float:
    """How many of some nodes that do not satisfy an expression are expected to take its message for theirs.

    Args:
        rate: of one node.
        expression: the message's.
        others: the nodes.
        subscribers: of each topic.
    """
    terms = terms_of_topics(expression)
    groups: dict[tuple[int, ...], Bitset] = {(): others}
    for topics in (subscribers, *terms):
        sets = [subscribers.get(topic, 0) for topic in topics]
        groups = {
            (*counts, count): some
            for counts, nodes in groups.items()
            for count, some in _count_sets(nodes, sets).items()
        }
    return sum(
        some.bit_count() * rate(own, tuple(len(term) - held for term, held in zip(terms, held_of, strict=True)))
        for (own, *held_of), some in groups.items()
    )


def _count_sets(nodes: Bitset, sets: Iterable[Bitset]) -> dict[int, Bitset]:
    """Some nodes by the number of sets that they are in."""
    found = {0: nodes}
    for each in sets:
        after: dict[int, Bitset] = {}
        for count, some in found.items():
            for number, part in ((count, some & ~each), (count + 1, some & each)):
                if part:
                    after[number] = after.get(number, 0) | part
        found = after
    return found


def measure_paths(delay_ns: Delay, hosts: int) -> Matrix | None:
    """Return the lengths (ms) of the shortest paths of a network; None if it has more than ``MOST_HOSTS`` hosts."""
    if hosts > MOST_HOSTS:
        return None
    rows = [[0 if one == other else delay_ns(one, other) / 1e6 for other in range(hosts)] for one in range(hosts)]
    return shortest_paths(np.array(rows))
