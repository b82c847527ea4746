"""Faults on purpose, for tests and benchmarks of what finds them. No run of an experiment has one."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from harness.testbeds.emulated.dataplane.links import Network, Pair
from topologies.model import Matrix


class LateFirsts(Struct, frozen=True):
    """First frames are late.

    Attributes:
        of: ``pairs``: the first frame of each directed pair; ``hosts``: the first frame that each host sends.
        late_ms: by how much, in virtual ms.
        every: only every so many pairs or hosts have the fault, by the order of their first frames.
    """

    of: Literal["pairs", "hosts"]
    late_ms: float = 1.5
    every: int = 1


class Firsts:
    """Which frames are first ones that the fault makes late."""

    def __init__(self, fault: LateFirsts) -> None:
        self._fault = fault
        self._met: set[int | tuple[int, int]] = set()

    def extra_ns(self, source: int, destination: int) -> int:
        """By how much this frame between the two is late."""
        key = source if self._fault.of == "hosts" else (source, destination)
        if key in self._met:
            return 0
        self._met.add(key)
        return 0 if len(self._met) % self._fault.every else round(self._fault.late_ms * 1e6)


class LateFirstsNetwork(Network):
    """A network with that fault. Only the route of a first frame is looked up, so later ones pay nothing."""

    def __init__(self, asked: Matrix, seed: int, fault: LateFirsts) -> None:
        super().__init__(asked, seed)
        self._firsts = Firsts(fault)

    def connect(self, source: int, address: bytes) -> Pair:
        """The pair for a frame whose route is not known; one that is late is forgotten, so that the next is not."""
        pair = super().connect(source, address)
        if pair.dead_end:
            return pair
        destination = pair.destination.host
        extra_ns = self._firsts.extra_ns(source, destination)
        if extra_ns:
            pair.delay_ns += extra_ns
            self._forget(source, destination)
        return pair
