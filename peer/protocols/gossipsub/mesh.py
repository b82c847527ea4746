"""GossipSub's overlay: one mesh per topic, which GRAFT and PRUNE change over the existing connections."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from peer.core.contract import Directory, NodeId, TopicId
from peer.core.frames import Data, Frame
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.outgoing import REFILL
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.gossipsub.connections import Connections
from peer.protocols.gossipsub.frames import Graft, Prune, Pruned
from peer.protocols.gossipsub.memory import Backoffs, Fanout, Promises
from peer.protocols.gossipsub.observed_links import MeshTopics
from peer.protocols.gossipsub.parameters import GossipsubParameters, to_ns
from peer.protocols.gossipsub.scores import PeerScores, Scores

HEARTBEAT, DECAY, EXPLICIT = "overlay/heartbeat", "overlay/decay", "overlay/explicit"


class Mesh(Part):
    """Keeps a mesh for every topic that the node subscribes to.

    Invariants: a mesh has only neighbours. After a heartbeat it has at least ``d_lo`` peers if so many can be grafted,
    and at most ``d_hi``, to which the outbound quota and opportunistic grafting may add peers until the next heartbeat.
    A (neighbour, topic) in a mesh is a logical link, traced as ``graft`` and ``prune``.

    Attributes:
        peers: the mesh of every subscribed topic, in the order in which peers entered it.
        fanout: the peers for topics without subscription, which a ``Router`` keeps.
        scores: the scores of the peers.
        promises: the messages that peers advertised and have not sent yet.
        backoffs: the peers that must not be grafted yet.

    Source: gossipsub v1.0, Router State, Topic Membership, Mesh Maintenance; v1.1, all protocol extensions.
    """

    Parameters = GossipsubParameters
    frames: ClassVar[tuple[type[Frame], ...]] = (Graft, Prune)
    writes = frozenset({"logical"})

    def __init__(self, state: State, membership: Membership, parameters: GossipsubParameters) -> None:
        super().__init__(state)
        self.peers: dict[TopicId, dict[NodeId, None]] = {}
        self.fanout = Fanout(to_ns(parameters.fanout_ttl_s))
        self.scores = PeerScores(parameters.score) if parameters.chosen.scoring else Scores()
        self.promises = Promises(
            to_ns(parameters.iwant_followup_s), substream(state.seed, state.node, "gossipsub/promises")
        )
        agreed = parameters.explicit_peers
        self._explicit = tuple(peer for peer in agreed if peer != state.node) if state.node in agreed else ()
        self._p = parameters
        self._profile = parameters.chosen
        self._accept_px = parameters.score.accept_px_threshold if self._profile.scoring else 0.0
        self._interval_ns = to_ns(parameters.heartbeat_interval_s)
        self._draws = substream(state.seed, state.node, "gossipsub/mesh")
        self._connections = Connections(state, membership, parameters.connections)
        self.backoffs = Backoffs()
        self._controls = Controls()
        self._heartbeats = 0

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks]:
        return MeshTopics

    # ------------------------------------------------------------------------------------------------- events

    def start(self, turn: Turn) -> None:
        """Join the topics of the configuration; the first heartbeats fill their meshes."""
        for topic in sorted(self.state.topics):
            self.peers[topic] = {}
        spread_ns = self._draws.randrange(self._interval_ns) if self._p.heartbeat_spread else 0
        turn.set_timer(HEARTBEAT, turn.now_ns + to_ns(self._p.heartbeat_initial_delay_s) + spread_ns)
        if self._explicit:
            turn.set_timer(EXPLICIT, turn.now_ns + to_ns(self._p.explicit_check_s))
        if self._profile.scoring:
            turn.set_timer(DECAY, turn.now_ns + to_ns(self._p.score.decay_interval_s))

    def meet(self, turn: Turn, directory: Directory) -> None:
        self._connections.keep(turn, self._explicit)
        self._connections.ambient.fill(turn)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        self.scores.connect(peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Forget the peer, except its score and its backoffs."""
        for mesh in self.peers.values():
            mesh.pop(peer, None)
        self.fanout.drop_peer(peer)
        self.scores.disconnect(turn.now_ns, peer)
        self._connections.link_down(turn, peer, retrying)

    def fire(self, turn: Turn, name: str) -> None:
        """Run the heartbeat, decay the scores, check the agreed connections, or replace other connections."""
        if name == HEARTBEAT:
            self._beat(turn)
            turn.set_timer(HEARTBEAT, turn.now_ns + self._interval_ns)
        elif name == DECAY:
            self.scores.decay(turn.now_ns)
            turn.set_timer(DECAY, turn.now_ns + to_ns(self._p.score.decay_interval_s))
        elif name == EXPLICIT:
            self._connections.keep(turn, self._explicit)
            turn.set_timer(EXPLICIT, turn.now_ns + to_ns(self._p.explicit_check_s))
        elif name == REFILL:
            self._connections.ambient.try_again(turn)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        assert isinstance(frame, (Graft, Prune))
        if not self.refuses(turn, peer, frame):
            self._take_control(turn, peer, frame)

    def _take_control(self, turn: Turn, peer: NodeId, frame: Graft | Prune) -> None:
        if isinstance(frame, Graft):
            for topic in frame.topics:
                self._take_graft(turn, peer, topic)
        else:
            for pruned in frame.pruned:
                self._take_prune(turn, peer, pruned)
        self._controls.send(turn)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        """Make a mesh of the fanout's peers first, then of others (JOIN)."""
        self.peers[topic] = {}
        fit = self.candidates(topic)
        before = [peer for peer in self.fanout.take(topic) if peer in fit]
        others = [peer for peer in fit if peer not in before]
        missing = max(self._p.d - len(before), 0)
        self._graft_all(turn, topic, before + self._draws.sample(others, min(missing, len(others))))
        self._controls.send(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """Prune all peers of the mesh (LEAVE)."""
        for peer in list(self.peers[topic]):
            self._prune(turn, topic, peer, "left", to_ns(self._p.unsubscribe_backoff_s))
        del self.peers[topic]
        self._controls.send(turn)

    # ------------------------------------------------------------------------------------------------- peers

    def refuses(self, turn: Turn, peer: NodeId, frame: Frame) -> bool:
        """Return whether to ignore a frame, since its sender is graylisted.

        Args:
            turn: the present turn.
            peer: the sender.
            frame: the frame.
        """
        if peer in self._explicit or self.scores.of(peer) >= self._p.score.graylist_threshold:
            return False
        refused = frame.message_id if isinstance(frame, Data) else None
        turn.trace("reject", peer=peer, message_id=refused, kind=frame.kind, reason="graylisted")
        return True

    def candidates(self, topic: TopicId) -> list[NodeId]:
        """Return the neighbours on a topic that may enter its mesh now."""
        mesh = self.peers[topic]
        return [
            peer for peer in self.subscribers(topic, 0.0) if peer not in mesh and not self.backoffs.holds(topic, peer)
        ]

    def subscribers(self, topic: TopicId, score: float) -> list[NodeId]:
        """Return the neighbours on a topic with at least this score, except explicit peers, in the order of links."""
        return [
            peer
            for peer, neighbour in self.state.neighbours.items()
            if topic in neighbour.interests and peer not in self._explicit and self.scores.of(peer) >= score
        ]

    def explicit_subscribers(self, topic: TopicId) -> list[NodeId]:
        """Return the explicit peers on a topic, which get every message whatever their scores."""
        neighbours = self.state.neighbours
        return [peer for peer in self._explicit if peer in neighbours and topic in neighbours[peer].interests]

    # ---------------------------------------------------------------------------------------------- heartbeat

    def _beat(self, turn: Turn) -> None:
        self._heartbeats += 1
        if self._heartbeats % self._profile.backoff_clear_heartbeats == 0:
            self.backoffs.clear(turn.now_ns - self._profile.backoff_slack_heartbeats * self._interval_ns)
        for peer, broken in self.promises.take_broken(turn.now_ns).items():
            turn.trace("reject", peer=peer, reason="broken_promise")
            self.scores.penalise(peer, broken)
        for topic in self.peers:
            self._maintain(turn, topic)
        self._controls.send(turn)

    def _maintain(self, turn: Turn, topic: TopicId) -> None:
        """Restore the bounds of one mesh.

        Source: gossipsub v1.1, Heartbeat Maintenance.
        """
        p, mesh = self._p, self.peers[topic]
        self._drop_unfit(turn, topic)
        if len(mesh) < self._profile.d_lo:
            self._graft_some(turn, topic, self.candidates(topic), p.d - len(mesh))
            if len(mesh) < self._profile.d_lo and p.discovery == "topics":
                self._connections.seek(turn, topic, p.d)
        elif len(mesh) > p.d_hi - self._profile.shrink_at_d_hi:
            self._shrink(turn, topic)
        if len(mesh) >= self._profile.d_lo:
            outbound = [peer for peer in self.candidates(topic) if self._is_outbound(peer)] if p.d_out else []
            self._graft_some(turn, topic, outbound, p.d_out - sum(map(self._is_outbound, mesh)))
        if self._heartbeats % p.opportunistic_graft_heartbeats == 0:
            self._graft_opportunistically(turn, topic)

    def _drop_unfit(self, turn: Turn, topic: TopicId) -> None:
        for peer in list(self.peers[topic]):
            if self.scores.of(peer) < 0:
                self._prune(turn, topic, peer, "negative_score")
            elif topic not in self.state.neighbours[peer].interests:
                # Its PRUNE came before its subscriptions, or was never sent: there is nothing to answer.
                self._remove(turn, topic, peer, "unsubscribed")

    def _shrink(self, turn: Turn, topic: TopicId) -> None:
        mesh = list(self.peers[topic])
        p = self._p
        kept = choose_survivors(mesh, p.d, p.d_score, p.d_out, self.scores.of, self._is_outbound, self._draws)
        for peer in mesh:
            if peer not in kept:
                self._prune(turn, topic, peer, "oversubscribed", exchange=True)

    def _graft_opportunistically(self, turn: Turn, topic: TopicId) -> None:
        mesh = sorted(map(self.scores.of, self.peers[topic]))
        if len(mesh) < 2:
            return
        median = mesh[len(mesh) // 2]
        if median < self._p.score.opportunistic_graft_threshold:
            better = [peer for peer in self.candidates(topic) if self.scores.of(peer) > median]
            self._graft_some(turn, topic, better, self._p.opportunistic_graft_peers)

    # ------------------------------------------------------------------------------------------ GRAFT and PRUNE

    def _take_graft(self, turn: Turn, peer: NodeId, topic: TopicId) -> None:
        """Add the sender to the mesh, too, or prune it.

        Args:
            turn: the present turn.
            peer: the sender.
            topic: the topic.

        Source: gossipsub v1.0, Message Processing; v1.1, PRUNE Backoff, Outbound Mesh Quotas, Spam Protection.
        """
        mesh = self.peers.get(topic)
        if mesh is None or peer in mesh:
            return
        if peer in self._explicit:
            turn.trace("reject", peer=peer, kind=Graft.kind, topics=(topic,), reason="explicit_peer")
            self._dismiss(turn, topic, peer)
        elif self.backoffs.running(topic, peer, turn.now_ns):
            turn.trace("reject", peer=peer, kind=Graft.kind, topics=(topic,), reason="backoff")
            self._punish_haste(turn, peer, topic)
            self._dismiss(turn, topic, peer)
        elif self.scores.of(peer) < 0:
            turn.trace("reject", peer=peer, kind=Graft.kind, topics=(topic,), reason="negative_score")
            self._dismiss(turn, topic, peer)
        elif len(mesh) >= self._p.d_hi and not self._is_outbound(peer):
            self._dismiss(turn, topic, peer, exchange=True)
        else:
            self._add(turn, topic, peer)

    def _punish_haste(self, turn: Turn, peer: NodeId, topic: TopicId) -> None:
        began_ns = self.backoffs.until_ns(topic, peer) - to_ns(self._p.prune_backoff_s)
        hasty = turn.now_ns < began_ns + to_ns(self._p.graft_flood_threshold_s)
        self.scores.penalise(peer, 2 if hasty else 1)

    def _take_prune(self, turn: Turn, peer: NodeId, pruned: Pruned) -> None:
        topic = pruned.topic
        if topic not in self.peers:
            return
        self._remove(turn, topic, peer, "pruned")
        backoff_ns = pruned.backoff_ms * 1_000_000 or to_ns(self._p.prune_backoff_s)
        self.backoffs.add(topic, peer, turn.now_ns + backoff_ns)
        if pruned.peers and self.scores.of(peer) >= self._accept_px:
            self._connections.follow(turn, pruned.peers, self._p.prune_peers)

    def _graft_some(self, turn: Turn, topic: TopicId, candidates: list[NodeId], wanted: int) -> None:
        if wanted > 0:
            self._graft_all(turn, topic, self._draws.sample(candidates, min(wanted, len(candidates))))

    def _graft_all(self, turn: Turn, topic: TopicId, peers: list[NodeId]) -> None:
        for peer in peers:
            self._add(turn, topic, peer)
            self._controls.graft(peer, topic)

    def _prune(
        self,
        turn: Turn,
        topic: TopicId,
        peer: NodeId,
        reason: str,
        backoff_ns: int | None = None,
        exchange: bool = False,
    ) -> None:
        """Remove a peer from a mesh and tell it.

        Args:
            turn: the present turn.
            topic: the topic of the mesh.
            peer: the peer.
            reason: why, for traces.
            backoff_ns: the time for which neither side may graft (ns); None = the default.
            exchange: whether to name other peers.
        """
        self._remove(turn, topic, peer, reason)
        self._dismiss(turn, topic, peer, backoff_ns, exchange)

    def _dismiss(
        self, turn: Turn, topic: TopicId, peer: NodeId, backoff_ns: int | None = None, exchange: bool = False
    ) -> None:
        """Tell a peer that it is not in a mesh, and for how long neither side may graft.

        Args:
            turn: the present turn.
            topic: the topic of the mesh.
            peer: the peer.
            backoff_ns: the time (ns); None = the default.
            exchange: whether to name other peers.
        """
        if backoff_ns is None:
            backoff_ns = to_ns(self._p.prune_backoff_s)
        self.backoffs.add(topic, peer, turn.now_ns + backoff_ns)
        others = self._others(topic, peer) if exchange and self._p.peer_exchange else ()
        self._controls.prune(peer, Pruned(topic, backoff_ns // 1_000_000, others))

    def _others(self, topic: TopicId, peer: NodeId) -> tuple[NodeId, ...]:
        """Return subscribers that a pruned peer may connect to instead. Peers with a negative score get none."""
        others = [other for other in self.subscribers(topic, 0.0) if other != peer]
        return tuple(self._draws.sample(others, min(self._p.prune_peers, len(others))))

    def _add(self, turn: Turn, topic: TopicId, peer: NodeId) -> None:
        self.peers[topic][peer] = None
        self.scores.graft(turn.now_ns, peer, topic)
        logical = self.state.neighbours[peer].logical
        self.set_logical(turn, peer, tuple(sorted((*logical, topic))), "")

    def _remove(self, turn: Turn, topic: TopicId, peer: NodeId, reason: str) -> None:
        if peer not in self.peers[topic]:
            return
        del self.peers[topic][peer]
        self.scores.prune(peer, topic)
        logical = self.state.neighbours[peer].logical
        self.set_logical(turn, peer, tuple(it for it in logical if it != topic), reason)

    def _is_outbound(self, peer: NodeId) -> bool:
        return self.state.neighbours[peer].outbound


def choose_survivors(
    peers: Sequence[NodeId],
    keep: int,
    by_score: int,
    outbound: int,
    score: Callable[[NodeId], float],
    is_outbound: Callable[[NodeId], bool],
    draws: Random,
) -> list[NodeId]:
    """Return the peers that stay in a mesh: those with the best scores, the others drawn uniformly.

    If too few are outbound, outbound peers replace random ones and ones with lower scores. Peers with equal scores are
    in a random order.

    Args:
        peers: the peers in the mesh.
        keep: the number of peers that stay.
        by_score: the number of peers that stay for their score.
        outbound: the least number of outbound peers among those that stay, if there are so many.
        score: returns the score of a peer.
        is_outbound: returns whether this node opened the link to a peer.
        draws: the generator.

    Source: gossipsub v1.1, Heartbeat Maintenance and Outbound Mesh Quotas.
    """
    ranked = sorted(draws.sample(peers, len(peers)), key=score, reverse=True)
    best, rest = ranked[:by_score], ranked[by_score:]
    draws.shuffle(rest)
    ranked = best + rest
    kept, others = ranked[:keep], ranked[keep:]
    missing = outbound - sum(map(is_outbound, kept))
    for newcomer in [peer for peer in others if is_outbound(peer)][: max(missing, 0)]:
        place = max((index for index, peer in enumerate(kept) if not is_outbound(peer)), default=None)
        if place is None:
            break
        kept[place] = newcomer
    return kept


class Controls:
    """Collects control messages until they are sent: one GRAFT and one PRUNE frame per peer.

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
