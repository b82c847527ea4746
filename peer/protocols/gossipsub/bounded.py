"""The GossipSub that the Topiary paper compares itself with: the topics share a bounded degree."""

from typing import Annotated

from msgspec import Meta

from peer.core.bitset import Bitset
from peer.core.contract import TopicId
from peer.core.membership.interface import Membership
from peer.core.outgoing import OutgoingLinks
from peer.core.parts import State, Turn
from peer.protocols.random_graph.overlay import RandomGraph, RandomParameters


class GossipsubBoundedParameters(RandomParameters, forbid_unknown_fields=True, frozen=True):
    """Degree-bounded GossipSub, a baseline of the Topiary paper; not GossipSub itself."""

    degree: Annotated[int, Meta(ge=1)] = 6
    """Links that a node opens, divided among its topics; incoming links are not limited."""


class BoundedGossipsub(RandomGraph):
    """Assigns its outgoing links to its topics in turn, each to a subscriber drawn uniformly.

    The topics are in a random order, and each gets one link before any gets a second one. With fewer links than topics,
    some topics get none. If no topic has a subscriber left, the remaining links go to nodes drawn uniformly, so that
    the degree is the same as in the other baselines. A link carries every topic that its ends share, like all links in
    the paper's network model. The paper says only: "Nodes equally distribute their outgoing degree to each of their
    interested [topics] to enable at least one connections to that topic"; the rest is our reading.

    Source: Topiary section V-A (Baselines) and II-A.
    """

    Parameters = GossipsubBoundedParameters

    def __init__(self, state: State, membership: Membership, parameters: GossipsubBoundedParameters) -> None:
        super().__init__(state, membership, parameters)
        self._membership = membership
        self.links = OutgoingLinks(state, membership, parameters.degree, self._next_slot, looks_again=False)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        """Assign the links again that serve no topic of this node."""
        self._deal_again(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        self._deal_again(turn)

    def _deal_again(self, turn: Turn) -> None:
        for peer, topic in list(self.links.chosen.items()):
            if topic not in self.state.topics:
                self.links.close(turn, peer, "topic_left")
        self.links.fill(turn)

    def _next_slot(self, fresh: Bitset) -> tuple[Bitset, TopicId | None]:
        """Return the fresh subscribers of the topic with the fewest links, and the topic; or all fresh nodes and None.

        Topics without fresh subscribers do not count.
        """
        slots = dict.fromkeys(sorted(self.state.topics), 0)
        for topic in self.links.chosen.values():
            if topic in slots:
                slots[topic] += 1
        for _, _, topic in sorted((count, self.links.draws.random(), topic) for topic, count in slots.items()):
            if among := fresh & self._membership.subscribers(topic):
                return among, topic
        return fresh, None
