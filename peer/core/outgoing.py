"""Links that a node chose itself: a fixed number of them, with replacements for lost ones."""

from collections.abc import Callable

from peer.core.bitset import Bitset, bitset, choose
from peer.core.contract import NodeId, TopicId
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.core.randomness import substream

REFILL = "overlay/refill"
"""The timer of an overlay that could not open all its links."""

REFILL_NS = 5_000_000_000
"""How long it waits before it tries again (ns)."""

FORGET_NS = 30_000_000_000
"""How long a node is not a candidate after its link failed (ns). Then it can be chosen again if it came back."""

DRAWS = "overlay"
"""The purpose of the draws of the chosen nodes."""

Preference = Callable[[Bitset], tuple[Bitset, TopicId | None]]
"""Returns the candidates from which to draw the next node, and the topic that the node is chosen for."""


class OutgoingLinks:
    """Opens ``degree`` links to nodes that this node chooses, and replaces lost ones.

    ``fill`` draws the missing nodes from the nodes that the membership knows, except chosen ones and those whose links
    failed within ``FORGET_NS``. If too few are left, it sets the timer ``REFILL``, after which failed nodes are
    candidates again. The overlay that has these links passes ``link_down`` and the timer on to them. Two nodes that
    chose each other share one link, which counts for both.

    Args:
        state: the node's state.
        membership: names the candidates.
        degree: how many links to keep.
        prefer: limits the candidates of each draw; None = draw from all candidates.
        looks_again: whether to set the timer even if no link failed, since the membership may find other nodes.

    Attributes:
        chosen: the chosen nodes, each with the topic that it was chosen for, or None. The overlay may delete some.
        draws: the generator of all draws.
    """

    __slots__ = ("_degree", "_failed_ns", "_looks_again", "_membership", "_prefer", "chosen", "draws")

    def __init__(
        self,
        state: State,
        membership: Membership,
        degree: int,
        prefer: Preference | None = None,
        *,
        looks_again: bool = True,
    ) -> None:
        self.chosen: dict[NodeId, TopicId | None] = {}
        self.draws = substream(state.seed, state.node, DRAWS)
        self._membership = membership
        self._degree = degree
        self._prefer = prefer
        self._looks_again = looks_again
        self._failed_ns: dict[NodeId, int] = {}

    def fill(self, turn: Turn, prefer: Preference | None = None) -> None:
        """Choose as many nodes as are missing; ``prefer`` applies to this call only."""
        prefer = prefer or self._prefer
        self._failed_ns = {peer: at_ns for peer, at_ns in self._failed_ns.items() if turn.now_ns - at_ns < FORGET_NS}
        fresh = self._membership.known & ~bitset(self.chosen) & ~bitset(self._failed_ns)
        while fresh and len(self.chosen) < self._degree:
            among, topic = prefer(fresh) if prefer else (fresh, None)
            peer = choose(among, self.draws)
            fresh &= ~(1 << peer)
            self.chosen[peer] = topic
            turn.connect(peer)
        if len(self.chosen) < self._degree and (self._looks_again or self._failed_ns):
            turn.set_timer(REFILL, turn.now_ns + REFILL_NS)

    def try_again(self, turn: Turn) -> None:
        """Choose missing nodes when the timer fired. Nodes that could not be reached are candidates again."""
        self._failed_ns.clear()
        self.fill(turn)

    def link_down(self, turn: Turn, peer: NodeId, retrying: bool) -> None:
        """Replace a chosen node that the driver does not redial.

        Args:
            turn: the present turn.
            peer: the node whose link ended.
            retrying: whether the driver redials.
        """
        if peer in self.chosen and not retrying:
            self._drop(turn, peer)
            self.fill(turn)

    def close(self, turn: Turn, peer: NodeId, reason: str) -> None:
        """Close the link to a chosen node. It is not a candidate for some time, since closing takes time.

        Args:
            turn: the present turn.
            peer: the chosen node.
            reason: why.
        """
        self._drop(turn, peer)
        turn.disconnect(peer, reason)

    def _drop(self, turn: Turn, peer: NodeId) -> None:
        del self.chosen[peer]
        self._failed_ns[peer] = turn.now_ns
