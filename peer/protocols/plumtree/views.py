"""HyParView's two views of a node in a swarm."""

from collections.abc import Container, Iterable
from random import Random

from peer.core.contract import NodeId
from peer.protocols.plumtree.parameters import PlumtreeParameters


class Views:
    """The active view, whose members are neighbours, and the passive view, which provides replacements.

    No node is in both views, and the owner is in neither.

    Args:
        node: the owner of the views.
        parameters: the sizes.
        draws: the generator for random choices.

    Attributes:
        active: the active view, in the order in which nodes entered it.
        passive: the passive view, in the order in which nodes entered it.
    """

    __slots__ = ("_draws", "_most_active", "_most_passive", "_node", "active", "passive")

    def __init__(self, node: NodeId, parameters: PlumtreeParameters, draws: Random) -> None:
        self.active: dict[NodeId, None] = {}
        self.passive: dict[NodeId, None] = {}
        self._node = node
        self._most_active = parameters.active_view
        self._most_passive = parameters.passive_view
        self._draws = draws

    @property
    def free(self) -> int:
        """The number of free places in the active view."""
        return self._most_active - len(self.active)

    def activate(self, peer: NodeId) -> None:
        """Put a node into the active view, which has a free place."""
        self.passive.pop(peer, None)
        self.active[peer] = None

    def remember(self, peer: NodeId, sent: Iterable[NodeId] = ()) -> None:
        """Put a node into the passive view. A full view first forgets a node of ``sent``, otherwise a random one."""
        if peer == self._node or peer in self.active or peer in self.passive or not self._most_passive:
            return
        if len(self.passive) >= self._most_passive:
            given_away = [other for other in sent if other in self.passive]
            del self.passive[self._draws.choice(given_away or list(self.passive))]
        self.passive[peer] = None

    def pick_active(self, *excluded: NodeId) -> NodeId | None:
        """Return a random neighbour other than these; None if there is none."""
        return self._pick(self.active, excluded)

    def pick_passive(self, *excluded: Container[NodeId]) -> NodeId | None:
        """Return a random member of the passive view that is in none of these; None if there is none."""
        return self._pick([peer for peer in self.passive if not any(peer in each for each in excluded)], ())

    def sample_active(self, count: int, *excluded: NodeId) -> tuple[NodeId, ...]:
        """Return up to ``count`` random neighbours other than these."""
        return self._sample([peer for peer in self.active if peer not in excluded], count)

    def sample_passive(self, count: int, *excluded: NodeId) -> tuple[NodeId, ...]:
        """Return up to ``count`` random members of the passive view other than these."""
        return self._sample([peer for peer in self.passive if peer not in excluded], count)

    def _pick(self, peers: Iterable[NodeId], excluded: Container[NodeId]) -> NodeId | None:
        fit = [peer for peer in peers if peer not in excluded]
        return self._draws.choice(fit) if fit else None

    def _sample(self, peers: list[NodeId], count: int) -> tuple[NodeId, ...]:
        return tuple(self._draws.sample(peers, min(count, len(peers))))
