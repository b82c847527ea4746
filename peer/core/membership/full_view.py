"""The full view: every node that the bootstrap service named."""

from __future__ import annotations

from peer.core.contract import NodeId, PeerInfo
from peer.core.node import Part, State, Turn


class FullView(Part):
    """Takes the bootstrap list for the truth and never changes it."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.candidates: tuple[NodeId, ...] = ()

    def meet(self, turn: Turn, peers: tuple[PeerInfo, ...]) -> None:
        """Keep the list, sorted and without this node."""
        self.candidates = tuple(sorted({peer.node for peer in peers} - {self.state.node}))
