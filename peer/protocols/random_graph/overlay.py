"""The random overlay: a fixed number of outgoing links to nodes drawn uniformly."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from peer.core.bitset import bitset, choose
from peer.core.contract import Directory, NodeId
from peer.core.failures import Failures
from peer.core.membership.interface import Membership
from peer.core.node import Part, State, Turn
from peer.core.randomness import substream

REFILL = "overlay/refill"
REFILL_NS = 5_000_000_000
"""How long a node that has too few candidates waits before it looks and tries again."""


class RandomParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The random overlay: links to nodes drawn uniformly."""

    degree: Annotated[int, Meta(ge=1)] = 5
    """Outgoing links a node opens; incoming ones are not limited."""


class RandomGraph(Part):
    """Opens ``degree`` links to nodes drawn uniformly from the candidates, and takes any number of incoming ones.

    A link that the driver gave up is replaced by another draw, and its node is not drawn again for a while. Two nodes
    that chose each other share one link, which counts for both.

    Source: Topiary section II-A (outgoing links); GossipSub's and Bitcoin's random connections are of this kind.
    """

    Parameters = RandomParameters

    def __init__(self, state: State, membership: Membership, parameters: RandomParameters) -> None:
        super().__init__(state)
        self._membership = membership
        self._degree = parameters.degree
        self._draws = substream(state.seed, state.node, "overlay")
        self._chosen: dict[NodeId, None] = {}
        self._failed = Failures()

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Choose as many as are missing."""
        self._fill(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Replace a chosen node that the driver no longer tries to reach."""
        if peer in self._chosen and not retrying:
            del self._chosen[peer]
            self._failed.add(turn.now_ns, peer)
            self._fill(turn)

    def fire(self, turn: Turn, name: str) -> None:
        """Give the nodes that could not be reached another chance, and those that the membership found since."""
        self._failed.clear()
        self._fill(turn)

    def _fill(self, turn: Turn) -> None:
        fresh = self._membership.known & ~bitset(self._chosen) & ~self._failed.at(turn.now_ns)
        missing = self._degree - len(self._chosen)
        for _ in range(min(missing, fresh.bit_count())):
            peer = choose(fresh, self._draws)
            fresh ^= 1 << peer
            self._chosen[peer] = None
            turn.connect(peer)
        if len(self._chosen) < self._degree:
            turn.set_timer(REFILL, turn.now_ns + REFILL_NS)
