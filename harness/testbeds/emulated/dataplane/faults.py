"""Injected faults, for tests and benchmarks of the checks that find them. No run of an experiment has one."""

from typing import Literal

from msgspec import Struct

from harness.testbeds.emulated.dataplane.links import EmulatedNetwork, Pair
from topologies.model import Matrix


class LateFirsts(Struct, frozen=True):
    """A fault that delays first frames.

    Attributes:
        of: ``pairs``: the first frame of each directed pair; ``hosts``: the first frame that each host sends.
        late_ms: the delay in virtual ms.
        every: n = only every n-th pair or host has the fault, in order of their first frames.
    """

    of: Literal["pairs", "hosts"]
    late_ms: float = 1.5
    every: int = 1


class Firsts:
    """The first frames that the fault delays."""

    def __init__(self, fault: LateFirsts) -> None:
        self._fault = fault
        self._met: set[int | tuple[int, int]] = set()

    def extra_ns(self, source: int, destination: int) -> int:
        """Return the delay of this frame between the two hosts."""
        key = source if self._fault.of == "hosts" else (source, destination)
        if key in self._met:
            return 0
        self._met.add(key)
        return 0 if len(self._met) % self._fault.every else round(self._fault.late_ms * 1e6)


class LateFirstsNetwork(EmulatedNetwork):
    """A network with that fault. Only first frames look up their route, so later ones cost nothing."""

    def __init__(self, asked: Matrix, seed: int, fault: LateFirsts) -> None:
        super().__init__(asked, seed)
        self._firsts = Firsts(fault)

    def connect(self, source: int, address: bytes) -> Pair:
        """Return the pair of a frame without a known route. Forget a delayed pair, so its next frame is not late."""
        pair = super().connect(source, address)
        if pair.dead_end:
            return pair
        destination = pair.destination.host
        extra_ns = self._firsts.extra_ns(source, destination)
        if extra_ns:
            pair.delay_ns += extra_ns
            self._forget(source, destination)
        return pair
