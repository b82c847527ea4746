"""The network between hosts as links: what a packet from one host to another crosses.

``topologies.model.Underlay`` is the document, ``Network`` what everything that carries, predicts or judges packets
reads. ``topologies.timeline`` has the changes of a network over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from topologies.bottlenecks import NO_BOTTLENECKS, Bottlenecks, Stop
from topologies.jitter import CORRELATION_MS
from topologies.model import Matrix, Underlay, between

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


class AskedOfPairs(NamedTuple):
    """What is asked of the packets of every directed pair: ``Asked`` as (n, n) matrices, from row to column.

    The diagonal has no meaning: a packet from a host to itself crosses no network.
    """

    delay_ms: Matrix
    jitter_ms: Matrix
    loss_ratio: Matrix


class Network:
    """The links between some hosts, and the path of every directed pair. It never changes.

    A packet crosses three links: the access link of its source, up; the link of its pair; the access link of its
    destination, down. Links are numbered: host h has the links h (up) and ``size`` + h (down), and the links of pairs
    follow. The link of a pair is made when it is asked for, from functions of the pair. So the network of a latency
    matrix copies nothing, and that of 10,000 points in a square has no matrix.

    The link of a pair can stand for a path through a graph. Where links of that path have a rate, packets stop there:
    ``stops`` says after which part of the delay. All pairs that cross a bottleneck share its queue.

    Attributes:
        size: number of hosts.
        delay_ms: the one-way delay of a pair.
        jitter_ms: the standard deviation of that delay; None = no pair has any.
        loss_ratio: the loss of a pair; None = no pair has any.
        rate_mbit: (2 n,) rate of each access link, by its number; empty = none has one, 0 = unlimited.
        queue_ms: (2 n,) length of each access link's queue, with or without a rate; empty = 0.
        jitter_correlation_ms: time between two random values of a pair's delay (``topologies.jitter``).
        bottlenecks: the links with a rate between the access links, and where they are on the paths of pairs.
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
        bottlenecks: Bottlenecks = NO_BOTTLENECKS,
    ) -> None:
        self.size = size
        self.delay_ms = delay_ms
        self.jitter_ms = jitter_ms
        self.loss_ratio = loss_ratio
        self.rate_mbit = rate_mbit
        self.queue_ms = queue_ms
        self.jitter_correlation_ms = jitter_correlation_ms
        self.bottlenecks = bottlenecks
        self._asked_of_pairs: AskedOfPairs | None = None

    @classmethod
    def of(cls, underlay: Underlay) -> Network:
        """Return the network of a latency matrix, with its numbers of hosts. The matrices are not copied."""
        return cls.of_pairs(
            AskedOfPairs(underlay.delay_ms, underlay.jitter_ms, underlay.loss_ratio),
            rate_mbit=underlay.rate_mbit.ravel().tolist() if underlay.rate_mbit.any() else (),
            queue_ms=underlay.queue_ms.ravel().tolist(),
            jitter_correlation_ms=underlay.jitter_correlation_ms,
            bottlenecks=Bottlenecks.of(underlay),
        )

    @classmethod
    def of_pairs(
        cls,
        asked: AskedOfPairs,
        *,
        rate_mbit: Sequence[float] = (),
        queue_ms: Sequence[float] = (),
        jitter_correlation_ms: float = CORRELATION_MS,
        bottlenecks: Bottlenecks = NO_BOTTLENECKS,
    ) -> Network:
        """Return the network whose pairs have the values of matrices, which are not copied."""
        network = cls(
            len(asked.delay_ms),
            asked.delay_ms.item,
            jitter_ms=_unless_zero(asked.jitter_ms),
            loss_ratio=_unless_zero(asked.loss_ratio),
            rate_mbit=rate_mbit,
            queue_ms=queue_ms,
            jitter_correlation_ms=jitter_correlation_ms,
            bottlenecks=bottlenecks,
        )
        network._asked_of_pairs = asked
        return network

    def with_pairs(self, asked: AskedOfPairs) -> Network:
        """Return the network in which other values are asked of all pairs, with the same rates and queues."""
        return Network.of_pairs(
            asked,
            rate_mbit=self.rate_mbit,
            queue_ms=self.queue_ms,
            jitter_correlation_ms=self.jitter_correlation_ms,
            bottlenecks=self.bottlenecks,
        )

    def without_jitter(self) -> Network:
        """Return the network with constant delays."""
        return self.with_pairs(self.asked_of_pairs()._replace(jitter_ms=between(self.size, 0.0)))

    def path(self, source: int, destination: int) -> tuple[int, ...]:
        """Return the numbers of the links that a packet crosses, in their order."""
        return self.access(source)[0], *self.inner_path(source, destination), self.access(destination)[1]

    def inner_path(self, source: int, destination: int) -> tuple[int, ...]:
        """Return the numbers of the links of that path without the two access links."""
        return ((2 + source) * self.size + destination,)

    def stops(self, source: int, destination: int) -> tuple[Stop, ...]:
        """Return the bottlenecks that a packet passes between the two access links, in its order."""
        return self.bottlenecks.stops(source, destination)

    def access(self, host: int) -> tuple[int, int]:
        """Return the numbers of a host's access link, up and down."""
        return host, self.size + host

    def link(self, number: int) -> Link:
        """Return a link by its number."""
        kind, host = divmod(number, self.size)
        if kind < 2:
            rate_mbit, queue_ms = (values[number] if values else 0.0 for values in (self.rate_mbit, self.queue_ms))
            return Link(rate_mbit=rate_mbit, queue_ms=queue_ms)
        return Link(*self._of_pair(kind - 2, host))

    def asked(self, source: int, destination: int) -> Asked:
        """Return what is asked of a pair: what its link does, since access links have only rates and queues."""
        return Asked(*self._of_pair(source, destination))

    def _of_pair(self, *pair: int) -> tuple[float, float, float]:
        """Return the delay, jitter and loss of the link of a pair."""
        jitter_ms, loss_ratio = self.jitter_ms, self.loss_ratio
        return self.delay_ms(*pair), jitter_ms(*pair) if jitter_ms else 0.0, loss_ratio(*pair) if loss_ratio else 0.0

    def asked_of_pairs(self) -> AskedOfPairs:
        """Return what is asked of all pairs. Matrices of which the network was made are returned as they are."""
        if self._asked_of_pairs is not None:
            return self._asked_of_pairs
        values = self.delay_ms, self.jitter_ms, self.loss_ratio
        return AskedOfPairs(*(_evaluate(self.size, value) for value in values))

    def crossings_ms(self, packet_bytes: int) -> Matrix:
        """Return (n, n) times in which a packet crosses the idle network: delays, and its size by the rates of links.

        Args:
            packet_bytes: the size of the packet, with all headers.
        """
        rates_mbit = np.array(self.rate_mbit or (0.0,) * 2 * self.size)
        sending_ms = np.zeros(2 * self.size)
        np.divide(packet_bytes * 8 / 1000, rates_mbit, out=sending_ms, where=rates_mbit > 0)
        up_ms, down_ms = sending_ms.reshape(2, self.size)
        crossings_ms = self.asked_of_pairs().delay_ms + up_ms[:, None] + down_ms[None, :]
        if self.bottlenecks:
            crossings_ms += self.bottlenecks.sums(
                [packet_bytes * 8 / 1000 / each.rate_mbit for each in self.bottlenecks.all]
            )
        return np.asarray(crossings_ms)

    @property
    def inner_queues_ms(self) -> Matrix:
        """(n, n) how long the queues of bottlenecks can hold a packet of each pair, together."""
        if not self.bottlenecks:
            return between(self.size, 0.0)
        return self.bottlenecks.sums([each.queue_ms for each in self.bottlenecks.all])


def uniform_network(size: int, delay_ms: float) -> Network:
    """Return a network with the same delay between any two hosts."""
    return Network(size, lambda source, destination: delay_ms)


def ask_path(links: Iterable[Link]) -> Asked:
    """Return what is asked of a path: delays add up, jitter and losses of links are independent, a cut link cuts it."""
    delay_ms = jitter_ms = loss_ratio = 0.0
    is_cut = False
    for link in links:
        delay_ms += link.delay_ms
        if link.jitter_ms:
            jitter_ms = join_jitters(jitter_ms, link.jitter_ms)
        if link.loss_ratio:
            loss_ratio = join_losses(loss_ratio, link.loss_ratio)
        is_cut = is_cut or link.is_cut
    return Asked(delay_ms, jitter_ms, loss_ratio, is_cut)


def join_jitters(one: float, other: float) -> float:
    """Return the standard deviation of the sum of two independent delays; of arrays, that of each element."""
    joined: float = (one * one + other * other) ** 0.5
    return joined


def join_losses(one: float, other: float) -> float:
    """Return the probability that one of two independent losses happens; exactly the other one if one is 0."""
    return one + other - one * other


def _unless_zero(matrix: Matrix) -> OfPair | None:
    return matrix.item if matrix.any() else None


def _evaluate(size: int, value: OfPair | None) -> Matrix:
    """Return (n, n) values of all pairs; without a function, zeros that use no memory."""
    if value is None:
        return between(size, 0.0)
    hosts = range(size)
    values = (value(source, destination) for source in hosts for destination in hosts)
    return np.fromiter(values, np.float64, size * size).reshape(size, size)
