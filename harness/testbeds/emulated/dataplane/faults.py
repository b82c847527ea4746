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
    """

    of: Literal["pairs", "hosts"]
    late_ms: float = 1.5


class LateFirstsNetwork(Network):
    """A network with that fault. Only the route of a first frame is looked up, so later ones pay nothing."""

    def __init__(self, asked: Matrix, seed: int, fault: LateFirsts) -> None:
        super().__init__(asked, seed)
        self._fault = fault
        self._met: set[int | tuple[int, int]] = set()

    def connect(self, source: int, address: bytes) -> Pair:
        """The pair for a frame whose route is not known; one that is late is forgotten, so that the next is not."""
        pair = super().connect(source, address)
        if pair.dead_end:
            return pair
        destination = pair.destination.host
        key = source if self._fault.of == "hosts" else (source, destination)
        if key not in self._met:
            self._met.add(key)
            pair.delay_ns += round(self._fault.late_ms * 1e6)
            self._forget(source, destination)
        return pair
