"""Interests: the topics that a node subscribes to, and whether it tells its neighbours."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame, Subscriptions
from peer.core.observed_links import AnnouncedTopics, ObservedLinks
from peer.core.parts import Neighbour, Part, Turn

_as_set: Callable[[tuple[TopicId, ...]], frozenset[TopicId]] = lru_cache(1 << 14)(frozenset)
"""Returns one set for equal topics, which the nodes of a simulation share."""


class PrivateInterests(Part):
    """Keeps the node's subscriptions and tells no other node. The overlay decides on logical links."""

    writes = frozenset({"topics"})

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        self.write(topics=self.state.topics | {topic})
        turn.trace("join", topics=(topic,))

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        self.write(topics=self.state.topics - {topic})
        turn.trace("leave", topics=(topic,))


class ToldInterests(PrivateInterests):
    """Sends the node's subscriptions when a link comes up and when they change, and keeps those of the neighbours.

    The node forwards messages to the neighbours that subscribe to their topics. The overlay decides on logical links.
    """

    frames = (Subscriptions,)
    writes = PrivateInterests.writes | {"interests", "forwards"}

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        turn.send(peer, self._own())

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        assert isinstance(frame, Subscriptions)
        topics = _as_set(frame.topics)
        self.write(peer, interests=topics, forwards=topics)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        super().subscribe(turn, topic)
        self._announce(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        super().unsubscribe(turn, topic)
        self._announce(turn)

    def _own(self) -> Subscriptions:
        return Subscriptions(tuple(sorted(self.state.topics)))

    def _announce(self, turn: Turn) -> None:
        frame = self._own()
        for peer in self.state.neighbours:
            turn.send(peer, frame)


class AnnouncedInterests(ToldInterests):
    """The interests of nodes for which every topic that both ends of a physical link subscribe to is a logical link.

    Each end traces ``graft`` and ``prune`` when it learns of the beginning and the end of a logical link.
    """

    writes = ToldInterests.writes | {"logical"}

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks]:
        return AnnouncedTopics

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        super().receive(turn, peer, frame)
        self._relink(turn, peer, self.state.neighbours[peer], "unsubscribed")

    def _announce(self, turn: Turn) -> None:
        super()._announce(turn)
        for peer, neighbour in self.state.neighbours.items():
            self._relink(turn, peer, neighbour, "left")

    def _relink(self, turn: Turn, peer: NodeId, neighbour: Neighbour, reason: str) -> None:
        """Set the logical links to the topics that both ends subscribe to."""
        self.set_logical(turn, peer, tuple(sorted(self.state.topics & neighbour.interests)), reason)
