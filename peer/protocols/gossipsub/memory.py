"""The state that a router keeps for a limited time: backoffs, fanout peers and promises of messages."""

from collections.abc import Sequence
from random import Random

from peer.core.contract import MessageId, NodeId, TopicId


class Backoffs:
    """The instants until which (topic, peer) backs off. Only a later instant replaces an earlier one.

    A GRAFT of the peer is refused until the instant itself (``running``). This node's own grafts wait until the entry
    is cleared (``holds``), which happens some time after the instant, since the clocks and heartbeats of both sides may
    differ.

    Source: gossipsub v1.1, PRUNE Backoff and Peer Exchange.
    """

    def __init__(self) -> None:
        self._until_ns: dict[TopicId, dict[NodeId, int]] = {}

    def add(self, topic: TopicId, peer: NodeId, until_ns: int) -> None:
        """Back off until an instant, unless a later one is known.

        Args:
            topic: the topic.
            peer: the peer.
            until_ns: the instant (ns).
        """
        peers = self._until_ns.setdefault(topic, {})
        peers[peer] = max(until_ns, peers.get(peer, 0))

    def running(self, topic: TopicId, peer: NodeId, now_ns: int) -> bool:
        return now_ns < self.until_ns(topic, peer)

    def until_ns(self, topic: TopicId, peer: NodeId) -> int:
        """Return the end of the backoff (ns); 0 = there is none."""
        return self._until_ns.get(topic, {}).get(peer, 0)

    def holds(self, topic: TopicId, peer: NodeId) -> bool:
        """Return whether this node must not graft the peer yet."""
        return peer in self._until_ns.get(topic, ())

    def clear(self, before_ns: int) -> None:
        """Forget the backoffs that ended before an instant (ns)."""
        for topic, peers in list(self._until_ns.items()):
            kept = {peer: until_ns for peer, until_ns in peers.items() if until_ns >= before_ns}
            if kept:
                self._until_ns[topic] = kept
            else:
                del self._until_ns[topic]


class Fanout:
    """The peers for topics without subscription, kept for some time after the last publication on the topic.

    Source: gossipsub v1.0, Peering State and Fanout Maintenance.
    """

    def __init__(self, ttl_ns: int) -> None:
        self.peers: dict[TopicId, dict[NodeId, None]] = {}
        self._ttl_ns = ttl_ns
        self._published_ns: dict[TopicId, int] = {}

    def use(self, topic: TopicId, now_ns: int) -> dict[NodeId, None]:
        """Return the topic's peers for a publication now. The caller may add peers."""
        self._published_ns[topic] = now_ns
        return self.peers.setdefault(topic, {})

    def take(self, topic: TopicId) -> tuple[NodeId, ...]:
        """Remove and return the topic's peers, since the node joins the topic."""
        self._published_ns.pop(topic, None)
        return tuple(self.peers.pop(topic, ()))

    def expire(self, now_ns: int) -> None:
        """Forget the topics on which nothing was published for the time to live."""
        for topic, published_ns in list(self._published_ns.items()):
            if now_ns - published_ns > self._ttl_ns:
                self.take(topic)

    def drop_peer(self, peer: NodeId) -> None:
        for peers in self.peers.values():
            peers.pop(peer, None)


class Promises:
    """The promised messages: one message per request, drawn at random. Its delivery by any peer fulfils all promises.

    Source: gossipsub v1.1, Spam Protection Measures.
    """

    def __init__(self, followup_ns: int, draws: Random) -> None:
        self._followup_ns = followup_ns
        self._draws = draws
        self._due_ns: dict[MessageId, dict[NodeId, int]] = {}

    def add(self, now_ns: int, peer: NodeId, asked: Sequence[MessageId]) -> None:
        """Note a request to a peer for these messages (at least one).

        Args:
            now_ns: the present instant (ns).
            peer: the peer.
            asked: the requested messages.
        """
        due_ns = self._due_ns.setdefault(self._draws.choice(asked), {})
        due_ns.setdefault(peer, now_ns + self._followup_ns)

    def fulfil(self, message_id: MessageId) -> None:
        self._due_ns.pop(message_id, None)

    def take_broken(self, now_ns: int) -> dict[NodeId, int]:
        """Remove the overdue promises, and return their number per peer."""
        broken: dict[NodeId, int] = {}
        for message_id, due_ns in list(self._due_ns.items()):
            for peer in [peer for peer, until_ns in due_ns.items() if until_ns < now_ns]:
                broken[peer] = broken.get(peer, 0) + 1
                del due_ns[peer]
            if not due_ns:
                del self._due_ns[message_id]
        return broken
