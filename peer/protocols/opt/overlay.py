"""OPT: an overlay per topic with as few links as the correlation of subscriptions allows."""

import heapq
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.parts import State, Turn
from peer.protocols.tman.frames import Profile
from peer.protocols.tman.observed_links import ProfileTopics
from peer.protocols.tman.overlay import TMan, Topics
from peer.protocols.tman.parameters import TManParameters
from peer.protocols.tman.ring import MASK, PrivateOrder


class OptParameters(TManParameters, forbid_unknown_fields=True, frozen=True):
    """Neighbours that cover every topic."""

    table_size: Annotated[int, Meta(ge=0, le=10_000)] = 15
    """Most entries of the routing table; 0 = no limit."""
    greedy_coverage: Annotated[int, Meta(ge=0, le=100)] = 3
    """Neighbours that a node wants for each of its topics, chosen to serve as many topics as possible."""
    random_coverage: Annotated[int, Meta(ge=0, le=100)] = 1
    """More neighbours that it wants for each of its topics, chosen regardless of other topics."""


class Opt(TMan):
    """Chooses neighbours until each topic has enough of them. It chooses the nodes that serve the most topics first.

    If all neighbours had similar subscriptions, a topic would be divided between groups of nodes that differ in their
    other topics. So a topic also gets neighbours in a random order that is fixed for each node.

    A link carries all topics that both its ends subscribe to, so nodes with similar subscriptions need few links. With
    a limit, topics may lack neighbours, and a topic's overlay may be partitioned. A node sends messages to all
    neighbours that subscribe to their topic, whichever side opened the link.

    Source: Vitis section IV (OPT).
    """

    Parameters = OptParameters
    frames = (*TMan.frames, Profile)

    def __init__(self, state: State, membership: Membership, parameters: OptParameters) -> None:
        super().__init__(state, membership, parameters)
        self._size = parameters.table_size
        self._greedy = parameters.greedy_coverage
        self._random = parameters.random_coverage
        self._place = PrivateOrder(state.node).place
        self._lacking: set[TopicId] = set(state.topics)
        self._last_place = MASK
        self._profile = Profile(state.topics, ())

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks]:
        return ProfileTopics

    # --------------------------------------------------------------------------------------------------- choice

    def select(self, pool: Mapping[NodeId, Topics]) -> Iterable[NodeId]:
        own = self.state.topics
        shared = {node: common for node, topics in pool.items() if (common := own & topics)}
        chosen, lacking = self._choose_greedily(shared)
        places = {self._place(node): node for node in shared if node not in chosen}
        missing = dict.fromkeys(own, self._random) if self._random else {}
        self._last_place = 0
        for place in sorted(places):
            if not missing or (self._size and len(chosen) == self._size):
                break
            node = places[place]
            if not missing.keys().isdisjoint(shared[node]):
                self._last_place = place
                chosen[node] = None
                _serve(missing, shared[node])
        self._lacking = {*lacking, *missing}
        return chosen

    def _choose_greedily(self, shared: Mapping[NodeId, Topics]) -> tuple[dict[NodeId, None], Iterable[TopicId]]:
        """Choose the node that serves the most topics that lack neighbours, again and again.

        The gain of a node only decreases when others are chosen. So it is recomputed only when it seems the highest.

        Args:
            shared: the topics that each known node has in common with this one.

        Returns:
            The nodes, and the topics that still lack neighbours.
        """
        missing = dict.fromkeys(self.state.topics, self._greedy) if self._greedy else {}
        queue = [
            (-len(topics), node not in self.table, node not in self.told, self._place(node), node)
            for node, topics in shared.items()
        ]
        heapq.heapify(queue)
        chosen: dict[NodeId, None] = {}
        while queue and missing and (len(chosen) < self._size or not self._size):
            loss, is_new, is_stranger, place, node = heapq.heappop(queue)
            gain = len(shared[node] & missing.keys())
            if gain == -loss:
                chosen[node] = None
                _serve(missing, shared[node])
            elif gain:
                heapq.heappush(queue, (-gain, is_new, is_stranger, place, node))
        return chosen, missing

    def narrow(self, candidates: Mapping[NodeId, Topics]) -> dict[NodeId, Topics]:
        own = self.state.topics
        return {
            node: topics
            for node, topics in candidates.items()
            if not self._lacking.isdisjoint(topics)
            or (self._place(node) < self._last_place and not own.isdisjoint(topics))
        }

    # ------------------------------------------------------------------------------------------- subscriptions

    def make_profile(self, turn: Turn) -> Frame:
        return self._profile

    def introduce(self, turn: Turn) -> Frame:
        return self._profile

    def relink(self, turn: Turn, peer: NodeId) -> None:
        shared = self.told[peer] & self.state.topics
        self.write(peer, interests=self.told[peer], forwards=shared)
        self.set_logical(turn, peer, tuple(sorted(shared)), "unsubscribed")

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        self._change_topics(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        self._change_topics(turn)

    def _change_topics(self, turn: Turn) -> None:
        self._profile = Profile(self.state.topics, ())
        self._reselects = True
        for peer in self.told:
            self.relink(turn, peer)


def _serve(missing: dict[TopicId, int], topics: Topics) -> None:
    """Count a neighbour for its topics."""
    for topic in topics & missing.keys():
        missing[topic] -= 1
        if not missing[topic]:
            del missing[topic]
