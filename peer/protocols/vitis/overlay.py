"""The Vitis overlay: clusters of nodes with similar subscriptions, and gateways that connect them."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.parts import State, Turn
from peer.core.rates import RateLaw
from peer.protocols.tman.overlay import MOST_TOPICS, NOTHING, Topics
from peer.protocols.tman.parameters import RingParameters
from peer.protocols.tman.relaying import RelayingOverlay
from peer.protocols.tman.ring import PrivateOrder, RingOrder, rank, topic_key
from peer.protocols.tman.selection import RING_LINKS
from peer.protocols.tman.shared_sets import PerSet
from peer.protocols.vitis.election import elect
from peer.protocols.vitis.frames import Proposal, VitisProfile
from peer.protocols.vitis.observed_links import ProfileTopics
from peer.protocols.vitis.utility import Preference, weights_of

rising: PerSet[tuple[TopicId, ...]] = PerSet(lambda topics: tuple(sorted(topics)))
"""Returns topics in rising order."""


class VitisParameters(RingParameters, forbid_unknown_fields=True, frozen=True):
    """Friends, gateways and relay paths."""

    table_size: Annotated[int, Meta(ge=3, le=1000)] = 15
    """RT-SIZE: entries of the routing table."""
    structured_links: Annotated[int, Meta(ge=2, le=1000)] = 3
    """k: how many of them are for routing: predecessor, successor, small-world neighbours. The others are friends."""
    gateway_hops: Annotated[int, Meta(ge=1, le=255)] = 5
    """d: most hops in a cluster from a node to its gateway."""


class PlacedVitisParameters(VitisParameters, forbid_unknown_fields=True, frozen=True):
    """The parameters with those that the plan gives every node."""

    rates: RateLaw | None = None
    """Publication rates of the topics; None = all are equal."""
    contacts: tuple[NodeId, ...] = ()
    """Nodes that this one knows at first, besides those that the bootstrap service and peer sampling name."""


class Vitis(RelayingOverlay):
    """Keeps a routing table of ring, small-world links and friends, and elects gateways for its topics.

    All neighbours that subscribe to a topic are mates in it, whichever side opened the link: the node forwards messages
    on the topic to them, and their proposals decide which gateway this node proposes. A node that proposes itself asks
    for a relay path to the topic's rendezvous node. The node recomputes a topic's proposal after a mate came, left or
    changed its own proposal.

    Attributes:
        mates: the neighbours that subscribe to each topic, each with its latest proposal.
        proposals: this node's own proposal for each topic, as in its profile.

    Source: Vitis sections III-A2, III-B and III-D, Algorithms 4 and 5.
    """

    Parameters = PlacedVitisParameters
    frames = (*RelayingOverlay.frames, VitisProfile)

    def __init__(self, state: State, membership: Membership, parameters: PlacedVitisParameters) -> None:
        long_links = min(parameters.structured_links, parameters.table_size) - RING_LINKS
        super().__init__(state, membership, parameters, long_links, parameters.contacts)
        self._size = parameters.table_size
        self._most_hops = parameters.gateway_hops
        self._least_utility = -1.0
        self._place = PrivateOrder(state.node).place
        self._weights = weights_of(parameters.rates)
        self._profiles: dict[NodeId, VitisProfile] = {}
        self._shared: dict[NodeId, tuple[TopicId, ...]] = {}
        self._places: dict[NodeId, tuple[int, ...]] = {}
        self._stale: dict[TopicId, None] = {}
        self.mates: dict[TopicId, dict[NodeId, Proposal]] = {}
        self.proposals: dict[TopicId, Proposal] = {}
        self._own_profile = VitisProfile(NOTHING, (), ())
        self._is_new = True
        self._adopt_topics()

    # --------------------------------------------------------------------------------------------------- choice

    def select(self, pool: Mapping[NodeId, Topics]) -> Iterable[NodeId]:
        """Choose ring and small-world neighbours, then the friends with the highest utility (Algorithm 4).

        Of equally useful nodes, it prefers nodes in the table. Each node orders the others in its own way, so that not
        all nodes choose the same ones.
        """
        chosen = self.world.choose(RingOrder(pool))
        utility, table, place = self._preference.utility, self.table, self._place
        ranked = sorted(
            [
                (-utility(topics), node not in table, place(node), node)
                for node, topics in pool.items()
                if node not in chosen
            ]
        )
        places = self._size - len(chosen)
        self._least_utility = -ranked[places - 1][0] if 0 < places <= len(ranked) else -1.0 if places else 1.0
        return [*chosen, *(node for _, _, _, node in ranked[:places])]

    def narrow(self, candidates: Mapping[NodeId, Topics]) -> dict[NodeId, Topics]:
        utility, least, would_choose = self._preference.utility, self._least_utility, self.world.would_choose
        return {node: topics for node, topics in candidates.items() if utility(topics) > least or would_choose(node)}

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks]:
        return ProfileTopics

    # -------------------------------------------------------------------------------------------------- profiles

    def make_profile(self, turn: Turn) -> Frame:
        """Update the proposals (Algorithm 5), and return the profile. An unchanged profile is the same object."""
        proposals = self.proposals
        stale = [topic for topic in self._stale if topic in proposals]
        self._stale.clear()
        for topic in stale:
            if (proposal := self._elect(topic)) != proposals[topic]:
                proposals[topic] = proposal
                self._is_new = True
        return self.introduce(turn)

    def introduce(self, turn: Turn) -> Frame:
        """Return the profile with the present proposals, which change once per round."""
        if self._is_new or self._own_profile.ring != self.world.ring:
            self._is_new = False
            self._own_profile = VitisProfile(self.state.topics, tuple(self.proposals.values()), self.world.ring)
        return self._own_profile

    def _elect(self, topic: TopicId) -> Proposal:
        mates = self.mates.get(topic, {})
        parent = self.proposals[topic].parent
        return elect(self.state.node, topic, mates, most_hops=self._most_hops, failed=self._lost, parent=parent)

    def gateways(self) -> Iterable[TopicId]:
        """Return the topics for which this node proposes itself.

        Before its d-th round, it may not know of a closer gateway. Then these are only the topics for which a neighbour
        proposes it, too.
        """
        own = self.state.node
        topics = [topic for topic, proposal in self.proposals.items() if proposal.gateway == own]
        if self.round >= self._most_hops:
            return topics
        offers = [(topic, self.mates.get(topic, {}).values()) for topic in topics]
        return [topic for topic, proposals in offers if any(proposal.gateway == own for proposal in proposals)]

    def is_served(self, topic: TopicId) -> bool:
        """Return whether a gateway is known. Before the d-th round, this node and its neighbours may not know one."""
        return self.round >= self._most_hops and super().is_served(topic)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, VitisProfile):
            self._take_profile(turn, peer, frame)
        else:
            super().receive(turn, peer, frame)

    def _take_profile(self, turn: Turn, peer: NodeId, frame: VitisProfile) -> None:
        """Note the new proposals in a neighbour's profile (Algorithm 7)."""
        before = self._profiles.get(peer)
        if frame is before:
            self._heard[peer] = self.round
            return
        offers, topics = frame.proposals, frame.topics
        if len(topics) > MOST_TOPICS or len(offers) != len(topics):
            reason = "too_many_topics" if len(topics) > MOST_TOPICS else "wrong_number_of_proposals"
            turn.trace("reject", peer=peer, kind=frame.kind, reason=reason)
            return
        known = self._shared.get(peer) if before is not None and topics == before.topics else None
        if before is None or known is None:
            new = {topic: offer for topic, offer in zip(rising[topics], offers, strict=True) if topic in self.proposals}
        else:
            held, places = before.proposals, self._places[peer]
            new = {
                topic: offers[place]
                for topic, place in zip(known, places, strict=True)
                if offers[place] is not held[place] and offers[place] != held[place]
            }
        if forged := self._find_forged(peer, new):
            turn.trace("reject", peer=peer, kind=frame.kind, topics=forged, reason="forged_proposal")
            return
        self._profiles[peer] = frame
        if known is not None:
            for topic, offer in new.items():
                self.mates[topic][peer] = offer
                if self._may_change(topic, peer, offer):
                    self._stale[topic] = None
        self.hear(turn, peer, topics)
        if before is None or frame.ring != before.ring:
            self.take_hints(frame.ring)

    def _may_change(self, topic: TopicId, peer: NodeId, offer: Proposal) -> bool:
        """Return whether a neighbour's new proposal may change this node's own.

        It may if the present proposal is from this neighbour, or if the new one is better.
        """
        present = self.proposals[topic]
        if present.parent == peer:
            return True
        if present.gateway == offer.gateway:
            return offer.hops + 1 < present.hops
        key = topic_key(topic)
        return rank(offer.gateway, key) < rank(present.gateway, key)

    def _find_forged(self, peer: NodeId, proposals: Mapping[TopicId, Proposal]) -> tuple[TopicId, ...]:
        """Return the topics of proposals that no honest neighbour makes, such as another gateway at 0 hops."""
        numbers, most_hops = self.state.numbers, self._most_hops
        return tuple(
            [
                topic
                for topic, it in proposals.items()
                if it.gateway >= numbers
                or it.parent >= numbers
                or it.hops > most_hops
                or (it.hops == 0) != (it.gateway == peer)
            ]
        )

    # ------------------------------------------------------------------------------------------------- clusters

    def clustered(self, topic: TopicId) -> Iterable[NodeId]:
        return self.mates.get(topic, ())

    def relink(self, turn: Turn, peer: NodeId) -> None:
        """Update the mates for the subscriptions of a neighbour and of this node."""
        topics = self.told[peer]
        self._unmate(peer)
        own, offers = self.proposals, self._profiles[peer].proposals
        places = self._places[peer] = tuple([place for place, topic in enumerate(rising[topics]) if topic in own])
        shared = self._shared[peer] = tuple([topic for topic in rising[topics] if topic in own])
        for topic, place in zip(shared, places, strict=True):
            self.mates.setdefault(topic, {})[peer] = offers[place]
            self._stale[topic] = None
        self.write(peer, interests=topics, forwards=frozenset(shared))
        self.set_logical(turn, peer, shared, "unsubscribed")

    def restore(self) -> None:
        """Recompute all proposals, since lost gateways count again."""
        self._stale.update(dict.fromkeys(self.proposals))

    def retire(self, turn: Turn, peer: NodeId) -> None:
        super().retire(turn, peer)
        self._profiles.pop(peer, None)
        self._unmate(peer)

    def forget(self, turn: Turn, peer: NodeId) -> None:
        super().forget(turn, peer)
        self._profiles.pop(peer, None)
        self._unmate(peer)

    def _unmate(self, peer: NodeId) -> None:
        self._places.pop(peer, None)
        for topic in self._shared.pop(peer, ()):
            self._stale[topic] = None
            mates = self.mates[topic]
            del mates[peer]
            if not mates:
                del self.mates[topic]

    # ---------------------------------------------------------------------------------------------- subscriptions

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        self._change_topics(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        self._change_topics(turn)

    def _change_topics(self, turn: Turn) -> None:
        self._adopt_topics()
        for peer, profile in list(self._profiles.items()):
            offers = zip(rising[profile.topics], profile.proposals, strict=True)
            if self._find_forged(peer, {topic: offer for topic, offer in offers if topic in self.proposals}):
                self._ignore(turn, peer)
            else:
                self.relink(turn, peer)

    def _ignore(self, turn: Turn, peer: NodeId) -> None:
        """Forget a profile with forged proposals for topics that this node did not subscribe to at its arrival."""
        turn.trace("reject", peer=peer, kind=VitisProfile.kind, reason="forged_proposal")
        del self._profiles[peer], self.told[peer]
        self._unmate(peer)
        self.write(peer, interests=NOTHING, forwards=NOTHING)
        self.set_logical(turn, peer, (), "unsubscribed")

    def _adopt_topics(self) -> None:
        """Take over the node's subscriptions: it proposes itself as the gateway of new topics."""
        own, topics = Proposal(self.state.node, self.state.node, 0), self.state.topics
        self._preference = Preference(topics, self._weights)
        self._reselects = True
        self.proposals = {topic: self.proposals.get(topic, own) for topic in sorted(topics)}
        self._is_new = True
