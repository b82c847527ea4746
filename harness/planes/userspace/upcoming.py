"""The scheduled changes of the network: which comes next, and when each was applied."""

from collections.abc import Iterator, Sequence
from typing import Final

from topologies.network import uniform_network
from topologies.timeline import Change, Reach, Timeline

NEVER: Final = (1 << 63) - 1
"""An instant after all others, in ns."""


class Upcoming:
    """The changes of a run, instant by instant.

    Attributes:
        next_ns: the next instant, on the run's clock; ``NEVER`` after the last one.
        applied_ns: when each instant so far was applied.
    """

    def __init__(self, changes: Sequence[Change], hosts: int, zero_ns: int) -> None:
        """Begin before the first instant.

        Args:
            changes: their instants count from ``zero_ns``.
            hosts: how many the network has.
            zero_ns: on the run's clock.
        """
        self._timeline = Timeline(uniform_network(hosts, 0.0), changes, zero_ns=zero_ns)
        self.applied_ns: list[int] = []
        self.next_ns = self._instant_ns()

    def changes(self) -> tuple[Reach, ...]:
        """Return the changes that hold from the next instant on."""
        return self._timeline.active(self._timeline.instants[len(self.applied_ns)])

    def losses(self) -> Iterator[Reach]:
        """Yield the changes that begin at the next instant and lose the packets that are on their links."""
        at_ns = self._timeline.instants[len(self.applied_ns)]
        return (each for each in self.changes() if each.change.loses_in_flight and each.change.from_ns == at_ns)

    def note(self, now_ns: int) -> None:
        """Note that the next instant was applied, and go on to the one after it."""
        self.applied_ns.append(now_ns)
        self.next_ns = self._instant_ns()

    def _instant_ns(self) -> int:
        instants = self._timeline.instants
        passed = len(self.applied_ns)
        return instants[passed] if passed < len(instants) else NEVER
