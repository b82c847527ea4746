"""The complete overlay: a link between any two nodes."""

from peer.core.bitset import members
from peer.core.contract import Directory, NodeId
from peer.core.membership.interface import Membership
from peer.core.outgoing import REFILL, REFILL_NS
from peer.core.parts import NoParameters, Part, State, Turn


class CompleteGraph(Part):
    """Opens a link to every candidate with a higher number.

    It keeps all links, so it redials failed ones itself: ``OutgoingLinks`` would draw from the candidates.
    """

    def __init__(self, state: State, membership: Membership, parameters: NoParameters) -> None:
        super().__init__(state)
        self._membership = membership
        self._failed: dict[NodeId, None] = {}

    def meet(self, turn: Turn, directory: Directory) -> None:
        for peer in members(self._membership.known):
            if peer > self.state.node:
                turn.connect(peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Redial a node after a pause if the driver does not."""
        if peer > self.state.node and not retrying:
            self._failed[peer] = None
            turn.set_timer(REFILL, turn.now_ns + REFILL_NS)

    def fire(self, turn: Turn, name: str) -> None:
        failed, self._failed = self._failed, {}
        for peer in failed:
            turn.connect(peer)
