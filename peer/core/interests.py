"""Interests: neighbours tell each other what they subscribe to. Part of every node."""

from __future__ import annotations

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame, Subscriptions
from peer.core.node import Neighbour, Part, Turn


class Interests(Part):
    """Sends the node's subscriptions when a link comes up and when they change, and keeps those of the neighbours.

    A topic to which both ends of a physical link subscribe makes a logical link; its beginning is traced as ``graft``
    and its end as ``prune``, by each end when it learns of it.
    """

    frames = (Subscriptions,)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """Tell the new neighbour."""
        turn.send(peer, self._own())

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Keep what the neighbour said."""
        assert isinstance(frame, Subscriptions)
        neighbour = self.state.neighbours[peer]
        neighbour.topics = frozenset(frame.topics)
        self._relink(turn, peer, neighbour, "unsubscribed")

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        """Tell all neighbours of one topic more."""
        self.state.topics |= {topic}
        turn.trace("join", topics=(topic,))
        self._announce(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """Tell all neighbours of one topic less."""
        self.state.topics -= {topic}
        turn.trace("leave", topics=(topic,))
        self._announce(turn)

    def _own(self) -> Subscriptions:
        return Subscriptions(tuple(sorted(self.state.topics)))

    def _announce(self, turn: Turn) -> None:
        frame = self._own()
        for peer, neighbour in self.state.neighbours.items():
            turn.send(peer, frame)
            self._relink(turn, peer, neighbour, "left")

    def _relink(self, turn: Turn, peer: NodeId, neighbour: Neighbour, reason: str) -> None:
        """Bring the logical links in line with both ends' subscriptions."""
        shared = tuple(sorted(self.state.topics & neighbour.topics))
        before, neighbour.logical = neighbour.logical, shared
        if ended := tuple(topic for topic in before if topic not in shared):
            turn.trace("prune", peer=peer, topics=ended, reason=reason)
        if begun := tuple(topic for topic in shared if topic not in before):
            turn.trace("graft", peer=peer, topics=begun)
