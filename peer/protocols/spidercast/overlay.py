"""SpiderCast: few neighbours that together share every topic of a node's interest K times."""

from typing import Annotated, Literal

from msgspec import Meta

from peer.core.contract import TopicId
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.spidercast.coverage import GreedyCoverage, RandomCoverage
from peer.protocols.spidercast.maintained_overlay import MaintainedOverlay
from peer.protocols.spidercast.maintenance import MaintenanceParameters

HIGHEST_ADAPTED = 3
"""The largest K_r that an adaptive node raises by one more (section 3.3.1)."""


class SpidercastParameters(MaintenanceParameters, forbid_unknown_fields=True, frozen=True):
    """SpiderCast: few neighbours that cover every topic K times."""

    greedy_coverage: Annotated[int, Meta(ge=0, le=100)] = 3
    """K_g: wanted neighbours on every subscribed topic, chosen to cover as many topics as possible."""
    random_coverage: Annotated[int, Meta(ge=0, le=100)] = 0
    """K_r: wanted neighbours on every subscribed topic, chosen at random; counted apart from the greedy ones."""
    ties: Literal["random", "lowest"] = "random"
    """Which of several nodes with equal coverage a node asks. ``random``: any (the paper). ``lowest``: the one with the
    lowest number, so that all nodes ask the same few."""
    scarce_topics: Literal["missed", "spared"] = "missed"
    """Topics with fewer than K other known subscribers. ``missed`` (the paper's listings): they are never covered, so
    the node gives up none of its neighbours. ``spared``: all known subscribers suffice."""
    adaptive: bool = False
    """Each node raises its own K_r if greedy coverage gives it too few neighbours."""


class SpiderCast(MaintainedOverlay):
    """Greedy and random coverage of the node's interest, by two independent tasks.

    Source: SpiderCast section 2.3; section 3.3.1 for ``adaptive``.
    """

    Parameters = SpidercastParameters

    def __init__(self, state: State, membership: Membership, parameters: SpidercastParameters) -> None:
        attainable = None
        if parameters.scarce_topics == "spared":
            attainable = self._count_known
        self._greedy = GreedyCoverage(parameters.greedy_coverage, attainable, fair=parameters.ties == "random")
        self._random = RandomCoverage(parameters.random_coverage, attainable)
        self._adaptive = parameters.adaptive
        super().__init__(state, membership, parameters, (self._greedy, self._random))

    def _count_known(self, topic: TopicId) -> int:
        return self.membership.subscribers(topic).bit_count()

    def fire(self, turn: Turn, name: str) -> None:
        """Run a round or the heartbeats. Then check whether an adaptive node needs more random neighbours."""
        super().fire(turn, name)
        if self._adaptive:
            self._adapt(turn)

    def _adapt(self, turn: Turn) -> None:
        """Raise K_r: first if the degree is exactly K_g, later if it is below the number of topics."""
        if self._greedy.missing() or self._random.missing():
            return
        degree = len(self._peers())
        if self._random.times == 0:
            raising = 0 < degree == self._greedy.times
        else:
            raising = degree < len(self.interest) and self._random.times <= HIGHEST_ADAPTED
        if raising:
            self._random.times += 1
            self.tasks[1].start(turn)
