"""The GRAFTs and PRUNEs of one turn, coalesced by peer."""

from peer.core.contract import NodeId, TopicId
from peer.core.parts import Turn
from peer.protocols.gossipsub.frames import Graft, Prune, Pruned


class Controls:
    """Collects control messages until they are sent: one GRAFT and one PRUNE frame a peer.

    Within a turn no (peer, topic) is both grafted and pruned, so the order of the two frames has no meaning.

    Source: gossipsub v1.0, Control Message Piggybacking (control messages with each other, not with data).
    """

    def __init__(self) -> None:
        self._grafts: dict[NodeId, list[TopicId]] = {}
        self._prunes: dict[NodeId, list[Pruned]] = {}

    def graft(self, peer: NodeId, topic: TopicId) -> None:
        self._grafts.setdefault(peer, []).append(topic)

    def prune(self, peer: NodeId, pruned: Pruned) -> None:
        """Tell a peer that it is not in a mesh."""
        self._prunes.setdefault(peer, []).append(pruned)

    def send(self, turn: Turn) -> None:
        grafts, self._grafts = self._grafts, {}
        prunes, self._prunes = self._prunes, {}
        for peer, topics in grafts.items():
            turn.send(peer, Graft(tuple(topics)))
        for peer, pruned in prunes.items():
            turn.send(peer, Prune(tuple(pruned)))
