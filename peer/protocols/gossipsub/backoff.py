"""Backoffs: which peers may not be grafted into which mesh again yet."""

from __future__ import annotations

from peer.core.contract import NodeId, TopicId


class Backoffs:
    """The instants until which (topic, peer) backs off. A later instant replaces an earlier one, never the reverse.

    A remote GRAFT is judged by the instant itself (``running``). This node's own grafts wait until the entry was
    cleared (``holds``), which the owner does some slack after the instant: so both sides' clocks and heartbeats may
    differ.

    Source: gossipsub v1.1, PRUNE Backoff and Peer Exchange.
    """

    def __init__(self) -> None:
        self._until_ns: dict[TopicId, dict[NodeId, int]] = {}

    def add(self, topic: TopicId, peer: NodeId, until_ns: int) -> None:
        """Back off until an instant, or longer where that was said before."""
        peers = self._until_ns.setdefault(topic, {})
        peers[peer] = max(until_ns, peers.get(peer, 0))

    def running(self, topic: TopicId, peer: NodeId, now_ns: int) -> bool:
        """Whether a GRAFT now comes too early."""
        return now_ns < self.until_ns(topic, peer)

    def until_ns(self, topic: TopicId, peer: NodeId) -> int:
        """The backoff's end; 0 where there is none."""
        return self._until_ns.get(topic, {}).get(peer, 0)

    def holds(self, topic: TopicId, peer: NodeId) -> bool:
        """Whether this node must not graft the peer yet."""
        return peer in self._until_ns.get(topic, ())

    def clear(self, before_ns: int) -> None:
        """Forget those that ended before an instant."""
        for topic, peers in list(self._until_ns.items()):
            kept = {peer: until_ns for peer, until_ns in peers.items() if until_ns >= before_ns}
            if kept:
                self._until_ns[topic] = kept
            else:
                del self._until_ns[topic]
