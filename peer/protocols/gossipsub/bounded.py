"""GossipSub as the Topiary paper compares itself with: the degree bound shared out among the topics."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from peer.core.bitset import Bitset, bitset, choose
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.failures import Failures
from peer.core.membership.interface import Membership
from peer.core.node import Part, State, Turn
from peer.core.randomness import substream

REFILL = "overlay/refill"
REFILL_NS = 5_000_000_000
"""How long a node that lacks links waits before it tries again the nodes that it could not reach."""


class GossipsubBoundedParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Degree-bounded GossipSub, a baseline of the Topiary paper; not GossipSub itself."""

    degree: Annotated[int, Meta(ge=1)] = 6
    """Outgoing links a node opens, shared out among its topics; incoming ones are not limited."""


class BoundedGossipsub(Part):
    """Deals its outgoing links to its topics in turn, each to a subscriber drawn uniformly.

    The topics come in a random order, and each gets one link before any gets a second: with fewer links than topics,
    some topics get none. Once no topic has a subscriber left, the remaining links go to nodes drawn uniformly, so that
    the degree is that of the other baselines. A link carries every topic that its ends share, as all links in the
    paper's network model do. The paper says only: "Nodes equally distribute their outgoing degree to each of their
    interested [topics] to enable at least one connections to that topic"; the rest is our reading.

    Source: Topiary section V-A (Baselines) and II-A.
    """

    Parameters = GossipsubBoundedParameters

    def __init__(self, state: State, membership: Membership, parameters: GossipsubBoundedParameters) -> None:
        super().__init__(state)
        self._membership = membership
        self._degree = parameters.degree
        self._draws = substream(state.seed, state.node, "overlay")
        self._chosen: dict[NodeId, TopicId | None] = {}
        self._failed = Failures()

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Choose as many as are missing."""
        self._fill(turn)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        """Links that serve no topic of this node are dealt again."""
        self._deal_again(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """The links of the topic are dealt again."""
        self._deal_again(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Replace a chosen node that the driver no longer tries to reach."""
        if peer in self._chosen and not retrying:
            del self._chosen[peer]
            self._failed.add(turn.now_ns, peer)
            self._fill(turn)

    def fire(self, turn: Turn, name: str) -> None:
        """Give the nodes that could not be reached another chance."""
        self._failed.clear()
        self._fill(turn)

    def _deal_again(self, turn: Turn) -> None:
        for peer, topic in list(self._chosen.items()):
            if topic not in self.state.topics:
                # Not at once again: its link is on its way down.
                del self._chosen[peer]
                self._failed.add(turn.now_ns, peer)
                turn.disconnect(peer, "topic_left")
        self._fill(turn)

    def _fill(self, turn: Turn) -> None:
        fresh = self._membership.known & ~bitset(self._chosen) & ~self._failed.at(turn.now_ns)
        while fresh and len(self._chosen) < self._degree:
            topic, among = self._next_slot(fresh)
            peer = choose(among, self._draws)
            fresh &= ~(1 << peer)
            self._chosen[peer] = topic
            turn.connect(peer)
        if len(self._chosen) < self._degree and self._failed:
            turn.set_timer(REFILL, turn.now_ns + REFILL_NS)

    def _next_slot(self, fresh: Bitset) -> tuple[TopicId | None, Bitset]:
        """The topic with the fewest links that has fresh subscribers, and those; no topic and all where none has."""
        slots = dict.fromkeys(sorted(self.state.topics), 0)
        for topic in self._chosen.values():
            if topic in slots:
                slots[topic] += 1
        for _, _, topic in sorted((count, self._draws.random(), topic) for topic, count in slots.items()):
            if among := fresh & self._membership.subscribers(topic):
                return topic, among
        return None, fresh
