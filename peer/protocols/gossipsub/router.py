"""All of GossipSub: the meshes, and the messages that nodes push through them and announce by gossip."""

from collections.abc import Callable, Iterable, Sequence

from peer.core.contract import Message, MessageId, NodeId, Publish, TopicId, publisher_of
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.core.randomness import substream
from peer.protocols.gossipsub.cache import MessageCache, SeenCache
from peer.protocols.gossipsub.frames import Graft, Idontwant, Ihave, Iwant, Prune
from peer.protocols.gossipsub.gossip import Gossip
from peer.protocols.gossipsub.idontwant import Unwanted
from peer.protocols.gossipsub.mesh import Mesh
from peer.protocols.gossipsub.parameters import GossipsubParameters, to_ns


class Router(Mesh):
    """Delivers and forwards messages on the node's topics over its meshes.

    A node sends a message on several topics once to the union of their meshes, and to explicit peers. It neither keeps
    nor forwards messages on topics without subscription. The application does not validate messages, and messages are
    not signed. So the only invalid message (P4) is an own message that comes back, which no honest peer sends.

    Source: gossipsub v1.0, Message Processing; v1.1, Flood Publishing; v1.2, IDONTWANT Message.
    """

    frames = (*Mesh.frames, Data, Ihave, Iwant, Idontwant)

    def __init__(self, state: State, membership: Membership, parameters: GossipsubParameters) -> None:
        super().__init__(state, membership, parameters)
        self._window_ns = to_ns(parameters.score.mesh_message_deliveries_window_s)
        self._cache = MessageCache(parameters.mcache_len, parameters.mcache_gossip)
        self._seen = SeenCache(to_ns(parameters.seen_ttl_s))
        self._unwanted = Unwanted(
            self._profile.max_idontwant_messages, parameters.max_idontwant_length, self._profile.idontwant_heartbeats
        )
        self._gossip = Gossip(state, self, parameters, self._cache, self._seen, self._unwanted)
        self._fanout_draws = substream(state.seed, state.node, "gossipsub/fanout")
        self._credited: dict[MessageId, dict[NodeId, None]] | None = {} if self._profile.scoring else None

    def publish(self, turn: Turn, publication: Publish) -> None:
        """Send this node's own message. Deliver it, too, if this node subscribes to one of its topics."""
        identifier, topics, payload = publication.message_id, publication.topics, publication.payload
        turn.trace("publish", message_id=identifier, topics=topics, len_bytes=len(payload))
        if identifier in self._seen:
            return
        self._seen.add(turn.now_ns, identifier)
        if not self.state.topics.isdisjoint(topics):
            turn.deliver(Message(identifier, topics, payload, 0))
            turn.trace("deliver", message_id=identifier, topics=topics, hops=0)
        copy = Data(identifier, topics, 1, UNLIMITED_TTL, payload)
        self._cache.put(copy)
        for peer in self._receivers(topics, lambda topic: self._own_receivers(turn, topic)):
            turn.send(peer, copy)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Take a message, gossip about messages, a GRAFT or a PRUNE."""
        if self.refuses(turn, peer, frame):
            return
        if isinstance(frame, Data):
            self._take(turn, peer, frame)
        elif isinstance(frame, Ihave):
            self._gossip.take_ihave(turn, peer, frame)
        elif isinstance(frame, Iwant):
            self._gossip.take_iwant(turn, peer, frame)
        elif isinstance(frame, (Graft, Prune)):
            self._take_control(turn, peer, frame)
        elif (
            isinstance(frame, Idontwant)
            and self._profile.heed_idontwant
            and not self._unwanted.add(peer, frame.message_ids)
        ):
            turn.trace("reject", peer=peer, kind=frame.kind, reason="too_many_idontwants")

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Forget the peer and the messages that it does not want."""
        super().link_down(turn, peer, reason, retrying)
        self._unwanted.drop_peer(peer)

    def _take(self, turn: Turn, peer: NodeId, data: Data) -> None:
        identifier = data.message_id
        topics = tuple(topic for topic in data.topics if topic in self.peers)
        if publisher_of(identifier) == self.state.node:
            turn.trace("reject", peer=peer, message_id=identifier, topics=data.topics, reason="own_message")
            self.scores.blame_invalid(peer, topics)
            return
        if not topics:
            turn.trace("reject", peer=peer, message_id=identifier, topics=data.topics, reason="not_subscribed")
            return
        if identifier in self._seen:
            turn.trace_copy("duplicate", peer, data)
            self._credit_near(turn, peer, identifier, topics)
            return
        self._seen.add(turn.now_ns, identifier)
        self._credit_first(peer, identifier, topics)
        if self._profile.idontwant and len(data.payload) >= self._profile.idontwant_min_bytes:
            mesh = dict.fromkeys(other for topic in topics for other in self.peers[topic] if other != peer)
            turn.send_each(tuple(mesh), Idontwant((identifier,)))
        turn.deliver(Message(identifier, data.topics, data.payload, data.hops))
        turn.trace_copy("deliver", peer, data)
        # A header has eight bits for the hop count, so further hops are not counted.
        copy = Data(identifier, data.topics, min(data.hops + 1, 255), UNLIMITED_TTL, data.payload)
        self._cache.put(copy)
        for receiver in self._receivers(topics, lambda topic: self._wanting(topic, identifier)):
            if receiver not in (peer, publisher_of(identifier)):
                turn.send(receiver, copy)

    def _receivers(self, topics: Sequence[TopicId], eager: Callable[[TopicId], Iterable[NodeId]]) -> Iterable[NodeId]:
        """Return the eager and the explicit peers of the topics, each once."""
        return dict.fromkeys(
            peer for topic in topics for peers in (eager(topic), self.explicit_subscribers(topic)) for peer in peers
        )

    def _wanting(self, topic: TopicId, identifier: MessageId) -> Iterable[NodeId]:
        """Return the mesh without the peers that do not want the message."""
        return (peer for peer in self.peers[topic] if not self._unwanted.holds(peer, identifier))

    def _own_receivers(self, turn: Turn, topic: TopicId) -> Iterable[NodeId]:
        """Return all neighbours on a topic with flood publishing; otherwise its mesh if subscribed, or its fanout."""
        if self._profile.flood_publish:
            return self._publishable(topic)
        return self.peers[topic] if topic in self.peers else self._fanout(turn, topic)

    def _fanout(self, turn: Turn, topic: TopicId) -> dict[NodeId, None]:
        peers = self.fanout.use(topic, turn.now_ns)
        if not peers:
            self._fill_fanout(topic, peers)
        return peers

    def _fill_fanout(self, topic: TopicId, peers: dict[NodeId, None]) -> None:
        fresh = [peer for peer in self._publishable(topic) if peer not in peers]
        for peer in self._fanout_draws.sample(fresh, min(max(self._p.d - len(peers), 0), len(fresh))):
            peers[peer] = None

    def _publishable(self, topic: TopicId) -> list[NodeId]:
        return self.subscribers(topic, self._p.score.publish_threshold)

    def _beat(self, turn: Turn) -> None:
        """Maintain meshes and fanout, send gossip, and advance the caches."""
        super()._beat(turn)
        self.fanout.expire(turn.now_ns)
        for topic, peers in self.fanout.peers.items():
            publishable = self._publishable(topic)
            for peer in [peer for peer in peers if peer not in publishable]:
                del peers[peer]
            self._fill_fanout(topic, peers)
        self._gossip.emit(turn)
        self._unwanted.beat()
        self._cache.shift()
        self._seen.expire(turn.now_ns)
        if self._credited is not None:
            self._credited = {
                identifier: peers
                for identifier, peers in self._credited.items()
                if identifier in self._seen and turn.now_ns - self._seen.first_ns(identifier) <= self._window_ns
            }

    def _credit_first(self, peer: NodeId, identifier: MessageId, topics: Sequence[TopicId]) -> None:
        self.promises.fulfil(identifier)
        self.scores.credit_first(peer, topics)
        if self._credited is not None:
            self._credited[identifier] = {peer: None}

    def _credit_near(self, turn: Turn, peer: NodeId, identifier: MessageId, topics: Sequence[TopicId]) -> None:
        """Credit the sender of a duplicate if it is its first copy and arrived within the window.

        Args:
            turn: the present turn.
            peer: the sender.
            identifier: the message.
            topics: the message's topics that this node subscribes to.
        """
        if self._credited is None or turn.now_ns - self._seen.first_ns(identifier) > self._window_ns:
            return
        senders = self._credited.setdefault(identifier, {})
        if peer not in senders:
            senders[peer] = None
            self.scores.credit_near(peer, topics)
