"""Watches the copies of messages in a simulation on a graph of routers: which links they cross."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from metrics.facts.crossings import Ints, Routes, Through, bound_crossings, count_copies, find_busiest
from metrics.measures.steiner import Matrix
from metrics.measures.underlay import UnderlayLoad
from peer.core.bitset import Bitset, members
from peer.core.contract import NodeId
from peer.trace import TraceEvent

if TYPE_CHECKING:
    Integers = array[int]
else:
    Integers = array  # has no parameters before Python 3.12


@dataclass(slots=True)
class CarriedMessage:
    """The copies of a message.

    Attributes:
        publisher: the node that published it.
        asked: the honest nodes that it is for, without the publisher.
        reached: those to which it was delivered.
        copies: of each copy sender and receiver, as one number.
        path_ns: of each node that got it, the one-way delays of the links of its first copy's path, added up.
    """

    publisher: NodeId
    asked: Bitset
    reached: Bitset = 0
    copies: Integers = field(default_factory=lambda: array("q"))
    path_ns: dict[NodeId, int] = field(default_factory=dict)

    def receive(self, event: TraceEvent, delay_ns: int) -> None:
        """Take a copy that a node received: an event ``deliver``, ``relay`` or ``duplicate`` that names the sender.

        Args:
            event: what the node traced.
            delay_ns: the one-way delay from sender to receiver.
        """
        assert event.peer is not None, "copies have a sender"
        self.copies.append(event.peer << 32 | event.node)
        before = 0 if event.peer == self.publisher else self.path_ns.get(event.peer)
        if before is not None and event.node != self.publisher:
            self.path_ns.setdefault(event.node, before + delay_ns)
        if event.event == "deliver":
            self.reached |= self.asked & 1 << event.node


def sum_up_carried(
    messages: Sequence[CarriedMessage],
    through: Through,
    delay_ns: Callable[[int, int], int],
    between: Matrix | None,
) -> UnderlayLoad:
    """Return what measures of the links read.

    Args:
        messages: the messages.
        through: the routes between nodes.
        delay_ns: one-way delay of a directed pair.
        between: of ``count_links_between``; None = no bounds.
    """
    copies = np.concatenate([np.empty(0, np.int64), *(np.array(each.copies, np.int64) for each in messages)])
    different, pair = np.unique(copies, return_inverse=True)
    pairs = np.stack([different >> 32, different & 0xFFFFFFFF], axis=1)
    message = np.repeat(np.arange(len(messages)), [len(each.copies) for each in messages])
    routes = Routes.of(through, pairs)
    counted, of_messages, most = count_copies(routes, pair, message, len(through.graph.links))
    crossings = np.zeros(len(messages), np.int64)
    np.add.at(crossings, message, routes.lengths[pair])
    return UnderlayLoad(
        counted,
        of_messages,
        most,
        crossings=crossings,
        bound=np.array([_bound(each, through.routers, between) for each in messages], np.float64),
        stretches=np.array([value for each in messages for value in _stretches(each, through.routers, delay_ns)]),
        busiest=find_busiest(routes, counted),
    )


def _bound(message: CarriedMessage, routers: Ints, between: Matrix | None) -> float:
    ends = routers[[message.publisher, *members(message.reached)]].tolist()
    return np.nan if between is None else bound_crossings(between, ends)


def _stretches(message: CarriedMessage, routers: Ints, delay_ns: Callable[[int, int], int]) -> list[float]:
    """Return the stretch of each delivery to another router whose path is known."""
    found = []
    for node in members(message.reached):
        path_ns = message.path_ns.get(node)
        if path_ns is not None and routers[node] != routers[message.publisher]:
            direct_ns = delay_ns(message.publisher, node)
            found += [path_ns / direct_ns] if direct_ns else []
    return found
