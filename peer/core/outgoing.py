"""Links of a node's own choice: a fixed number of them, refilled when some are lost."""

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
"""How long a node to which a link failed is no candidate (ns). After it, a node that came back can be chosen again."""

Preference = Callable[[Bitset], tuple[Bitset, TopicId | None]]
"""Which of the candidates to draw the next node from, and for the sake of which topic."""


class OutgoingLinks:
    """Opens ``degree`` links to nodes of this node's choice, and replaces those that are lost.

    ``fill`` draws the missing nodes from those that the membership knows, except the chosen ones and those whose links
    failed within ``FORGET_NS``. While too few are left, the timer ``REFILL`` is set; then the failed ones are tried
    again. The overlay that has these links passes ``link_down`` and the timer on to them. Two nodes that chose each
    other share one link, which counts for both.

    Args:
        state: the node's.
        membership: names the candidates.
        degree: how many links to keep.
        prefer: narrows each draw; None = all candidates are drawn alike.
        looks_again: whether to set the timer even if no link has failed, since the membership may find other nodes.

    Attributes:
        chosen: the nodes, each with the topic that it was chosen for, or None. The overlay may delete some.
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
        self.draws = substream(state.seed, state.node, "overlay")
        self._membership = membership
        self._degree = degree
        self._prefer = prefer
        self._looks_again = looks_again
        self._failed_ns: dict[NodeId, int] = {}

    def fill(self, turn: Turn, prefer: Preference | None = None) -> None:
        """Choose as many nodes as are missing; ``prefer`` holds for this time only."""
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
        """The timer fired: nodes that could not be reached are candidates again."""
        self._failed_ns.clear()
        self.fill(turn)

    def link_down(self, turn: Turn, peer: NodeId, retrying: bool) -> None:
        """Replace a chosen node that the driver does not try to reach again."""
        if peer in self.chosen and not retrying:
            self._drop(turn, peer)
            self.fill(turn)

    def close(self, turn: Turn, peer: NodeId, reason: str) -> None:
        """Close the link to a chosen node, which is no candidate for a while, since the link takes time to close."""
        self._drop(turn, peer)
        turn.disconnect(peer, reason)

    def _drop(self, turn: Turn, peer: NodeId) -> None:
        del self.chosen[peer]
        self._failed_ns[peer] = turn.now_ns
