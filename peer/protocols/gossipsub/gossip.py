"""Lazy gossip: IHAVE to peers outside the mesh, and IWANT for messages that the node has not seen."""

from peer.core.contract import MessageId, NodeId, TopicId
from peer.core.parts import State, Turn
from peer.core.randomness import substream
from peer.protocols.gossipsub.cache import MessageCache, SeenCache
from peer.protocols.gossipsub.frames import Advert, Ihave, Iwant
from peer.protocols.gossipsub.idontwant import Unwanted
from peer.protocols.gossipsub.mesh import Mesh
from peer.protocols.gossipsub.parameters import GossipsubParameters


class Gossip:
    """Advertises the messages in the cache, asks for messages that others advertise, and answers such requests.

    Source: gossipsub v1.0, Gossip Emission and Message Processing; v1.1, Adaptive Gossip Dissemination and Spam
    Protection Measures.
    """

    def __init__(
        self,
        state: State,
        mesh: Mesh,
        parameters: GossipsubParameters,
        cache: MessageCache,
        seen: SeenCache,
        unwanted: Unwanted,
    ) -> None:
        self._mesh = mesh
        self._p = parameters
        self._cache = cache
        self._seen = seen
        self._unwanted = unwanted
        self._draws = substream(state.seed, state.node, "gossipsub/gossip")
        self._heard: dict[NodeId, int] = {}
        self._asked: dict[NodeId, int] = {}

    def emit(self, turn: Turn) -> None:
        """Advertise the latest windows on the topics of meshes and fanout, one frame per peer. Reset the counters."""
        self._heard.clear()
        self._asked.clear()
        adverts: dict[NodeId, list[Advert]] = {}
        for topic, message_ids in self._cache.advertisable().items():
            eager = self._mesh.peers.get(topic, self._mesh.fanout.peers.get(topic))
            if eager is not None:
                for peer in self._choose(topic, eager):
                    adverts.setdefault(peer, []).append(Advert(topic, self._some(message_ids)))
        for peer, listed in adverts.items():
            turn.send(peer, Ihave(tuple(listed)))

    def _choose(self, topic: TopicId, eager: dict[NodeId, None]) -> list[NodeId]:
        threshold = self._p.score.gossip_threshold
        peers = [peer for peer in self._mesh.subscribers(topic, threshold) if peer not in eager]
        wanted = max(self._p.d_lazy, int(self._p.gossip_factor * len(peers)))
        return self._draws.sample(peers, min(wanted, len(peers)))

    def _some(self, message_ids: list[MessageId]) -> tuple[MessageId, ...]:
        """Return all message ids, or a random sample of the maximum size, drawn for each peer."""
        limit = self._p.max_ihave_length
        return tuple(message_ids if len(message_ids) <= limit else self._draws.sample(message_ids, limit))

    def take_ihave(self, turn: Turn, peer: NodeId, ihave: Ihave) -> None:
        """Ask for the advertised messages that this node has not seen, on its topics and within the limits.

        Args:
            turn: the present turn.
            peer: the peer that advertised them.
            ihave: its frame.
        """
        if self._ignores(turn, peer, Ihave.kind):
            return
        self._heard[peer] = self._heard.get(peer, 0) + 1
        if self._heard[peer] > self._p.max_ihave_messages:
            turn.trace("reject", peer=peer, kind=Ihave.kind, reason="too_many_ihaves")
            return
        limit, asked = self._p.max_ihave_length, self._asked.get(peer, 0)
        new: dict[MessageId, None] = {}
        for advert in ihave.adverts:
            if advert.topic in self._mesh.peers:
                new.update((it, None) for it in advert.message_ids[:limit] if it not in self._seen)
        if asking := self._draws.sample(list(new), max(min(len(new), limit - asked), 0)):
            self._asked[peer] = asked + len(asking)
            self._mesh.promises.add(turn.now_ns, peer, asking)
            turn.send(peer, Iwant(tuple(asking)))

    def take_iwant(self, turn: Turn, peer: NodeId, iwant: Iwant) -> None:
        """Send each requested message once, if it is still kept and was not sent to the peer too often.

        The node does not send messages that the peer does not want any more.

        Args:
            turn: the present turn.
            peer: the peer that asks.
            iwant: its frame.

        Source: gossipsub v1.2, Cancelling IWANT.
        """
        if self._ignores(turn, peer, Iwant.kind):
            return
        for message_id in dict.fromkeys(iwant.message_ids):
            if self._unwanted.holds(peer, message_id):
                continue
            copy = self._cache.get_for_peer(message_id, peer, self._p.gossip_retransmission)
            if copy is not None:
                turn.send(peer, copy)

    def _ignores(self, turn: Turn, peer: NodeId, kind: int) -> bool:
        if self._mesh.scores.of(peer) >= self._p.score.gossip_threshold:
            return False
        turn.trace("reject", peer=peer, kind=kind, reason="below_gossip_threshold")
        return True
