"""The similarity overlay: SpiderCast's tasks with a number of links as their aim, whatever these cover."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated

from msgspec import Meta

from peer.core.bitset import Bitset, choose, most_often
from peer.core.contract import NodeId
from peer.core.membership.interface import Membership
from peer.core.parts import State
from peer.protocols.spidercast.coverage import Interest
from peer.protocols.spidercast.maintained_overlay import MaintainedOverlay
from peer.protocols.spidercast.maintenance import MaintenanceParameters


class LinkCount:
    """The aim of a number of neighbours, including accepted ones. It takes the place of SpiderCast's coverage.

    Source: SpiderCast section 3.9.1.
    """

    def __init__(self, links: int) -> None:
        self.limit = links
        self._own: Interest = frozenset()
        self._neighbours = 0

    @property
    def wanted(self) -> bool:
        return self.limit > 0

    def recount(self, own: Interest, neighbours: Iterable[Interest]) -> None:
        self._own = own
        self._neighbours = sum(1 for _ in neighbours)

    def add(self, interest: Interest) -> None:
        self._neighbours += 1

    def remove(self, interest: Interest) -> None:
        self._neighbours -= 1

    def missing(self, gone: Sequence[Interest] = ()) -> int:
        return max(0, self.limit - self._neighbours + len(gone))

    def gains_by(self, interest: Interest) -> bool:
        """Return whether neighbours are missing: then any neighbour helps."""
        return self.missing() > 0

    def critical(self, gone: Sequence[Interest]) -> Interest:
        """Return no topics, since all neighbours count alike."""
        return frozenset()


class SimilarNodes(LinkCount):
    """Chooses the node that shares the most topics with this one."""

    def next_node(self, membership: Membership, among: Bitset, draws: Random) -> NodeId | None:
        """Return a candidate that shares the most topics, drawn from equal ones (NEXTSIMILARITYNODE).

        Args:
            membership: names the subscribers of topics.
            among: the candidates; any of them may be drawn if none shares a topic.
            draws: the generator.
        """
        best = most_often((membership.subscribers(topic) for topic in sorted(self._own)), among) or among
        return choose(best, draws) if best else None


class AnyNodes(LinkCount):
    """Chooses any node."""

    def next_node(self, membership: Membership, among: Bitset, draws: Random) -> NodeId | None:
        """Return any candidate (NEXTRANDOMNODE).

        Args:
            membership: not used.
            among: the candidates.
            draws: the generator.
        """
        return choose(among, draws) if among else None


class SimilarityParameters(MaintenanceParameters, forbid_unknown_fields=True, frozen=True):
    """The similarity overlay: links to the most similar nodes, and random ones."""

    similar: Annotated[int, Meta(ge=0, le=10_000)] = 10
    """Wanted neighbours with the most similar interests."""
    random: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """Wanted random neighbours. With ``similar = 0`` this is the paper's random overlay."""


class Similarity(MaintainedOverlay):
    """Similar and random neighbours, by two independent tasks; (x, y) in the paper's notation.

    Source: SpiderCast section 3.9.1.
    """

    Parameters = SimilarityParameters

    def __init__(self, state: State, membership: Membership, parameters: SimilarityParameters) -> None:
        aims = (SimilarNodes(parameters.similar), AnyNodes(parameters.random))
        super().__init__(state, membership, parameters, aims)
