"""The network between hosts as links: what a packet from one host to another crosses.

``topologies.model.Underlay`` is the document, ``Network`` what everything that carries, predicts or judges packets
reads. ``topologies.timeline`` has the changes of a network over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from topologies.jitter import CORRELATION_MS

if TYPE_CHECKING:
    from topologies.model import Matrix, Underlay

OfPair = Callable[[int, int], float]
"""(source, destination) -> a value of that directed pair of hosts."""


class Link(NamedTuple):
    """A link, in one direction.

    Attributes:
        delay_ms: time to cross it.
        jitter_ms: standard deviation of that time.
        loss_ratio: probability that it loses a packet, 0..1.
        rate_mbit: 0 = unlimited.
        queue_ms: length of its drop-tail queue, as the time to drain it at its rate.
        is_cut: whether no packet enters it.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_ratio: float = 0.0
    rate_mbit: float = 0.0
    queue_ms: float = 0.0
    is_cut: bool = False


class Asked(NamedTuple):
    """What is asked of the packets of a directed pair of hosts, without what queues and rates add.

    Attributes:
        delay_ms: one-way delay.
        jitter_ms: its standard deviation.
        loss_ratio: probability that a packet is lost, 0..1.
        is_cut: whether no packet passes.
    """

    delay_ms: float
    jitter_ms: float = 0.0
    loss_ratio: float = 0.0
    is_cut: bool = False


class Network:
    """The links between some hosts, and the path of every directed pair. It never changes.

    A packet crosses three links: the access link of its source, up; the link of its pair; the access link of its
    destination, down. Links are numbered: host h has the links h (up) and ``size`` + h (down), and the links of pairs
    follow. The link of a pair is made when it is asked for, from functions of the pair. So the network of a latency
    matrix copies nothing, and that of 10,000 points in a square has no matrix.

    Attributes:
        size: number of hosts.
        delay_ms: the one-way delay of a pair.
        jitter_ms: the standard deviation of that delay; None = no pair has any.
        loss_ratio: the loss of a pair; None = no pair has any.
        rate_mbit: (2 n,) rate of each access link, by its number; empty = none has one, 0 = unlimited.
        queue_ms: (2 n,) length of each access link's queue, with or without a rate; empty = 0.
        jitter_correlation_ms: time between two random values of a pair's delay (``topologies.jitter``).
    """

    def __init__(
        self,
        size: int,
        delay_ms: OfPair,
        *,
        jitter_ms: OfPair | None = None,
        loss_ratio: OfPair | None = None,
        rate_mbit: Sequence[float] = (),
        queue_ms: Sequence[float] = (),
        jitter_correlation_ms: float = CORRELATION_MS,
    ) -> None:
        self.size = size
        self.delay_ms = delay_ms
        self.jitter_ms = jitter_ms
        self.loss_ratio = loss_ratio
        self.rate_mbit = rate_mbit
        self.queue_ms = queue_ms
        self.jitter_correlation_ms = jitter_correlation_ms

    @classmethod
    def of(cls, underlay: Underlay) -> Network:
        """Return the network of a latency matrix, with its numbers of hosts. The matrices are not copied."""
        return cls(
            underlay.size,
            underlay.delay_ms.item,
            jitter_ms=_unless_zero(underlay.jitter_ms),
            loss_ratio=_unless_zero(underlay.loss_ratio),
            rate_mbit=underlay.rate_mbit.ravel().tolist() if underlay.rate_mbit.any() else (),
            queue_ms=underlay.queue_ms.ravel().tolist(),
            jitter_correlation_ms=underlay.jitter_correlation_ms,
        )

    def path(self, source: int, destination: int) -> tuple[int, ...]:
        """Return the numbers of the links that a packet crosses, in their order."""
        return source, (2 + source) * self.size + destination, self.size + destination

    def link(self, number: int) -> Link:
        """Return a link by its number."""
        kind, host = divmod(number, self.size)
        if kind < 2:
            rate_mbit, queue_ms = (values[number] if values else 0.0 for values in (self.rate_mbit, self.queue_ms))
            return Link(rate_mbit=rate_mbit, queue_ms=queue_ms)
        pair = kind - 2, host
        jitter_ms, loss_ratio = (0.0 if value is None else value(*pair) for value in (self.jitter_ms, self.loss_ratio))
        return Link(self.delay_ms(*pair), jitter_ms, loss_ratio)

    def asked(self, source: int, destination: int) -> Asked:
        """Return what is asked of a pair."""
        return ask_path(map(self.link, self.path(source, destination)))


def uniform_network(size: int, delay_ms: float) -> Network:
    """Return a network with the same delay between any two hosts."""
    return Network(size, lambda source, destination: delay_ms)


def ask_path(links: Iterable[Link]) -> Asked:
    """Return what is asked of a path: delays add up, jitter and losses of links are independent, a cut link cuts it."""
    return reduce(_cross, links, Asked(0.0))


def _cross(before: Asked, link: Link) -> Asked:
    return Asked(
        before.delay_ms + link.delay_ms,
        join_jitters(before.jitter_ms, link.jitter_ms),
        join_losses(before.loss_ratio, link.loss_ratio),
        before.is_cut or link.is_cut,
    )


def join_jitters(one: float, other: float) -> float:
    """Return the standard deviation of the sum of two independent delays; of arrays, that of each element."""
    joined: float = (one * one + other * other) ** 0.5
    return joined


def join_losses(one: float, other: float) -> float:
    """Return the probability that one of two independent losses happens; exactly the other one if one is 0."""
    return one + other - one * other


def _unless_zero(matrix: Matrix) -> OfPair | None:
    return matrix.item if matrix.any() else None
