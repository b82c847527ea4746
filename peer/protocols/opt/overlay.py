"""OPT: an overlay per topic with as few links as the correlation of subscriptions allows."""

import heapq
from collections.abc import Iterable, Mapping
from math import inf
from typing import Annotated, Any, Literal

from msgspec import Meta

from peer.core.contract import Directory, NodeId, TopicId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.parts import State, Turn
from peer.protocols.tman.frames import Profile
from peer.protocols.tman.observed_links import ProfileTopics
from peer.protocols.tman.overlay import NOTHING, TMan, Topics, share
from peer.protocols.tman.parameters import TManParameters
from peer.protocols.tman.ring import MASK, PrivateOrder


class OptParameters(TManParameters, forbid_unknown_fields=True, frozen=True):
    """Neighbours that cover every topic."""

    table_size: Annotated[int, Meta(ge=0, le=10_000)] = 15
    """Most entries of the routing table; 0 = no limit."""
    bound: Literal["entries", "links"] = "entries"
    """What ``table_size`` bounds. ``entries``: the entries of the routing table; links that other nodes opened are
    additional. ``links``: all links of a node, which closes each link that comes up when it has as many already."""
    start: Literal["random", "converged"] = "random"
    """The nodes that a node knows at the start. ``random``: those that the bootstrap service and peer sampling name.
    ``converged``: also those that rounds would find, for runs that measure the overlay at rest: the nodes that share
    the most topics with it, and some random subscribers of each topic. The node chooses its neighbours from them
    itself."""
    greedy_coverage: Annotated[int, Meta(ge=0, le=100)] = 3
    """Neighbours that a node wants for each of its topics, chosen to serve as many topics as possible."""
    random_coverage: Annotated[int, Meta(ge=0, le=100)] = 1
    """More neighbours that it wants for each of its topics, chosen regardless of other topics."""


class PlacedOptParameters(OptParameters, forbid_unknown_fields=True, frozen=True):
    """The parameters with those that the plan gives every node."""

    contacts: tuple[NodeId, ...] = ()
    """Nodes that this one knows at first, besides those that the bootstrap service and peer sampling name."""


FULL = "full"
"""The reason with which a node closes a link beyond its bound. The other node tries other nodes for some rounds."""


class Opt(TMan):
    """Chooses neighbours until each topic has enough of them. It chooses the nodes that serve the most topics first.

    If all neighbours had similar subscriptions, a topic would be divided between groups of nodes that differ in their
    other topics. So a topic also gets neighbours in a random order that is fixed for each node.

    A link carries all topics that both its ends subscribe to, so nodes with similar subscriptions need few links. With
    a limit, topics may lack neighbours, and a topic's overlay may be partitioned. A node sends messages to all
    neighbours that subscribe to their topic, whichever side opened the link.

    With a bound on all links, the neighbours that opened a link to this node serve its topics like entries of the
    table. A node keeps the links that it has, and adds nodes for topics that lack neighbours while it has room. Each
    node may open more links than its neighbours accept. So the bound is enforced when a link comes up: a node that has
    as many links already closes it. Links that peer sampling borrows, and retired links, do not count.

    Source: Vitis section IV (OPT).
    """

    Parameters = PlacedOptParameters
    frames = (*TMan.frames, Profile)

    def __init__(self, state: State, membership: Membership, parameters: PlacedOptParameters) -> None:
        super().__init__(state, membership, parameters, parameters.contacts)
        self._size = parameters.table_size
        self._bounds_links = parameters.bound == "links" and parameters.table_size > 0
        self._spare: dict[NodeId, Topics] = {}
        self._drawn: set[NodeId] = set()
        self._closing: set[NodeId] = set()
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
        held = self._links_of_others()
        chosen = {node: None for node in self.table if node in shared} if self._bounds_links else {}
        self._drawn &= chosen.keys()
        greedy = dict.fromkeys(own, self._greedy) if self._greedy else {}
        by_chance = dict.fromkeys(own, self._random) if self._random else {}
        for node in (*chosen, *held):
            _serve(by_chance if node in self._drawn else greedy, shared.get(node, NOTHING))
        most = (self._size or inf) - len(held)
        others = {node: topics for node, topics in shared.items() if node not in chosen and node not in held}
        self._choose_greedily(others, greedy, chosen, most)
        places = {self._place(node): node for node in others if node not in chosen}
        self._last_place = 0
        for place in sorted(places):
            if not by_chance or len(chosen) >= most:
                break
            node = places[place]
            if not by_chance.keys().isdisjoint(shared[node]):
                self._last_place = place
                chosen[node] = None
                self._drawn.add(node)
                _serve(by_chance, shared[node])
        self._lacking = {*greedy, *by_chance}
        return chosen

    def _links_of_others(self) -> set[NodeId]:
        """Return the neighbours whose links count and that are no entries; there are none if only entries count."""
        return self._counted() - self.table.keys() if self._bounds_links else set()

    def _choose_greedily(
        self, shared: Mapping[NodeId, Topics], missing: dict[TopicId, int], chosen: dict[NodeId, None], most: float
    ) -> None:
        """Choose the node that serves the most topics that lack neighbours, again and again.

        The gain of a node only decreases when others are chosen. So it is recomputed only when it seems the highest.

        Args:
            shared: the topics that each candidate has in common with this node.
            missing: the neighbours that each topic still lacks; they are counted down.
            chosen: the nodes that were chosen before, to which it adds.
            most: the number of nodes at which it ends.
        """
        queue = [
            (-len(topics), node not in self.table, node not in self.told, self._place(node), node)
            for node, topics in shared.items()
        ]
        heapq.heapify(queue)
        while queue and missing and len(chosen) < most:
            loss, is_new, is_stranger, place, node = heapq.heappop(queue)
            gain = len(shared[node] & missing.keys())
            if gain == -loss:
                chosen[node] = None
                _serve(missing, shared[node])
            elif gain:
                heapq.heappush(queue, (-gain, is_new, is_stranger, place, node))

    def narrow(self, candidates: Mapping[NodeId, Topics]) -> dict[NodeId, Topics]:
        if self._bounds_links and len(self._counted() | self.table.keys()) >= self._size:
            return {}
        own = self.state.topics
        return {
            node: topics
            for node, topics in candidates.items()
            if not self._lacking.isdisjoint(topics)
            or (self._place(node) < self._last_place and not own.isdisjoint(topics))
        }

    # --------------------------------------------------------------------------------- converged start, bound

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Remember the contacts: a node that is refused chooses again from them."""
        known = directory.nodes
        self._spare = {node: share[directory.topics_of(node)] for node in self._contacts if known >> node & 1}
        super().meet(turn, directory)

    def adopt(self, pool: Mapping[NodeId, Topics], ages: Mapping[NodeId, int]) -> None:
        super().adopt({**self.find_strangers(self._spare.items()), **pool}, ages)

    def restore(self) -> None:
        self._reselects |= self._bounds_links

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        if not self._bounds_links or len(self._counted()) <= self._size:
            super().link_up(turn, peer)
            return
        self._closing.add(peer)
        self._opened.pop(peer, None)
        self.table.pop(peer, None)
        self._reselects = True
        turn.disconnect(peer, FULL)

    def _counted(self) -> set[NodeId]:
        """Return the neighbours whose links count for the bound on all links."""
        return self.state.neighbours.keys() - self.retired.keys() - self._closing

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        if reason == FULL and peer in self._opened:
            self._lose(peer)
        super().link_down(turn, peer, reason, retrying)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if peer not in self._closing:
            super().receive(turn, peer, frame)

    def forget(self, turn: Turn, peer: NodeId) -> None:
        self._closing.discard(peer)
        self._reselects |= self._bounds_links

    def retire(self, turn: Turn, peer: NodeId) -> None:
        self._reselects |= self._bounds_links

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
