"""Watches messages with expressions in a simulation: which members, relays and other nodes they reach."""

from array import array
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import field

from metrics.facts.groups import GroupMessage, count_expressions
from metrics.measures.groups import GroupMessages, Newcomers
from metrics.measures.measure import Values
from metrics.measures.steiner import MOST_HOSTS, Matrix, shortest_paths
from peer.core.addressing.keywords import find_members
from peer.core.bitset import Bitset
from peer.core.contract import NodeId, TopicId
from peer.trace import TraceEvent

Delay = Callable[[int, int], int]
"""(source, destination) -> one-way delay in ns."""


class WatchedMessage(GroupMessage):
    """A message with an expression in a simulation.

    Attributes:
        newcomers: see ``metrics.measures.groups.Newcomers``.
        links: of each copy the link's nodes, as one number.
    """

    newcomers: Bitset = 0
    links: list[int] = field(default_factory=list)

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
        assert event.peer is not None and self.delay_ns is not None, "copies have a sender and a link"
        self.copies += 1
        self.delay_ns += delay_ns
        self.links.append(min(event.node, event.peer) << 32 | max(event.node, event.peer))
        if event.event == "relay":
            self.relay(1 << event.node)
        elif event.event == "deliver":
            self.deliver(event.node, subscribers)


def sum_up_groups(
    messages: Sequence[WatchedMessage], sent: "Sequence[array[int]]", honest: Sequence[NodeId], lengths: Matrix | None
) -> GroupMessages:
    """Return what measures of some messages read.

    Args:
        messages: the messages.
        sent: for some of them together, by node: how many copies it sent; an array may end early.
        honest: the nodes that count.
        lengths: of ``shortest_paths``; None = no bounds.
    """
    found = [message.summarise(lengths) for message in messages]
    columns = {name: np.array([each[name] for each in found], kind) for name, kind in _COLUMNS.items()}
    return GroupMessages(
        **columns,
        sent=np.array([sum(part[node] for part in sent if node < len(part)) for node in honest], np.int64),
        expressions=_count_expressions(messages),
    )


_COLUMNS = {
    **dict.fromkeys(("members", "reached", "latecomers", "false_positives", "relays", "others", "copies"), np.int64),
    **dict.fromkeys(("false_positives_predicted", "delay_ms", "bound_ms"), np.float64),
}
"""The columns of ``GroupMessage.summarise`` and their types."""


def count_newcomers(messages: Sequence[WatchedMessage]) -> Newcomers:
    """Return the newcomers of some messages, and those that got them."""
    return Newcomers(
        sum(message.newcomers.bit_count() for message in messages),
        sum((message.newcomers & message.latecomers).bit_count() for message in messages),
    )


def _count_expressions(messages: Sequence[WatchedMessage]) -> Values:
    """Return for each link that carried copies the number of their different expressions."""
    texts: dict[str, int] = {}
    expression = np.array([texts.setdefault(message.expression, len(texts)) for message in messages], np.int64)
    copies = np.array([len(message.links) for message in messages], np.int64)
    carried = np.array([link for message in messages for link in message.links], np.int64)
    links, link = np.unique(carried, return_inverse=True)
    return count_expressions(link, np.repeat(expression, copies), len(links))


def measure_paths(delay_ns: Delay, hosts: int) -> Matrix | None:
    """Return the lengths (ms) of the shortest paths of a network; None if it has more than ``MOST_HOSTS`` hosts."""
    if hosts > MOST_HOSTS:
        return None
    rows = [[0 if one == other else delay_ns(one, other) / 1e6 for other in range(hosts)] for one in range(hosts)]
    return shortest_paths(np.array(rows))
