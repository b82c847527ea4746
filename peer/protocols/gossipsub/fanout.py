"""Fanout: peers for the topics on which a node publishes without a subscription."""

from __future__ import annotations

from peer.core.contract import NodeId, TopicId


class Fanout:
    """For each such topic some peers, kept for a while after the last publication on it.

    Source: gossipsub v1.0, Peering State and Fanout Maintenance.
    """

    def __init__(self, ttl_ns: int) -> None:
        self.peers: dict[TopicId, dict[NodeId, None]] = {}
        self._ttl_ns = ttl_ns
        self._published_ns: dict[TopicId, int] = {}

    def use(self, topic: TopicId, now_ns: int) -> dict[NodeId, None]:
        """The topic's peers, for a publication now; the caller may add to them."""
        self._published_ns[topic] = now_ns
        return self.peers.setdefault(topic, {})

    def take(self, topic: TopicId) -> tuple[NodeId, ...]:
        """The topic's peers, which are forgotten here: the node joins the topic."""
        self._published_ns.pop(topic, None)
        return tuple(self.peers.pop(topic, ()))

    def expire(self, now_ns: int) -> None:
        """Forget the topics on which nothing was published for the time to live."""
        for topic, published_ns in list(self._published_ns.items()):
            if now_ns - published_ns > self._ttl_ns:
                self.take(topic)

    def drop_peer(self, peer: NodeId) -> None:
        """A link is gone."""
        for peers in self.peers.values():
            peers.pop(peer, None)
