"""StAN's views: for each topic a fixed number of nodes, those that weigh least for the node that has the view."""

import hashlib
from collections.abc import Iterable

from peer.core.contract import NodeId, TopicId

NOBODY: frozenset[NodeId] = frozenset()

KEPT_WEIGHTS = 4096
"""Weights remembered before all are forgotten and recomputed."""


class AlignedViews:
    """The views of one node. They know nothing of links.

    A view never changes its size, never holds a node twice and never this node. One that begins empty, where nobody
    else subscribed yet, has room for one node. A member that is known to be gone keeps its place until another node
    takes it; meanwhile it is not *present*.

    Args:
        node: whose views they are.
        views: (topic, nodes) of every view at the start.
    """

    def __init__(self, node: NodeId, views: Iterable[tuple[TopicId, Iterable[NodeId]]] = ()) -> None:
        self._node = node
        self._views: dict[TopicId, tuple[NodeId, ...]] = {}
        self._gone: dict[TopicId, frozenset[NodeId]] = {}
        self._weights: dict[NodeId, int] = {}
        for topic, nodes in views:
            self.begin(topic, nodes)

    def __contains__(self, topic: TopicId) -> bool:
        return topic in self._views

    def __getitem__(self, topic: TopicId) -> tuple[NodeId, ...]:
        """The whole view of a topic, rising."""
        return self._views[topic]

    @property
    def topics(self) -> list[TopicId]:
        """The topics with a view, rising."""
        return sorted(self._views)

    def begin(self, topic: TopicId, nodes: Iterable[NodeId]) -> None:
        """Have a view of a topic, of these nodes; their number is its size from now on."""
        self._views[topic] = tuple(sorted({*nodes} - {self._node}))

    def end(self, topic: TopicId) -> None:
        """Have no view of a topic any more."""
        self._views.pop(topic, None)
        self._gone.pop(topic, None)

    def is_empty(self, topic: TopicId) -> bool:
        """Whether there is no view of a topic, or nobody in it."""
        return not self._views.get(topic)

    def present(self, topic: TopicId) -> list[NodeId]:
        """The members of a view that are not known to be gone, rising."""
        gone = self._gone.get(topic, NOBODY)
        return [node for node in self._views.get(topic, ()) if node not in gone]

    def miss(self, node: NodeId, topics: Iterable[TopicId]) -> bool:
        """A node is gone from these topics; whether it was a present member of any."""
        left = [topic for topic in topics if node in self.present(topic)]
        for topic in left:
            self._gone[topic] = self._gone.get(topic, NOBODY) | {node}
        return bool(left)

    def trust(self, node: NodeId, topics: Iterable[TopicId]) -> bool:
        """A node is in these topics after all; whether it was a member of any that was taken for gone."""
        back = [topic for topic in topics if node in self._gone.get(topic, NOBODY)]
        for topic in back:
            self._gone[topic] -= {node}
        return bool(back)

    def align(self, topic: TopicId, nodes: Iterable[NodeId]) -> bool:
        """Keep the lightest of these nodes and the members, as many as before; whether anything changed.

        Members that are gone are kept only where there are too few others.

        Source: StAN Listing 1, lines 16-22; "minimize the weights" (section 2), and this node itself left out.
        """
        view, gone = self._views[topic], self._gone.get(topic, NOBODY)
        candidates = {*nodes, *view} - gone - {self._node}
        size = len(view) or 1
        lightest = sorted(candidates, key=self._weigh)[:size]
        kept = [node for node in view if node in gone][: size - len(lightest)]
        self._gone[topic] = frozenset(kept)
        self._views[topic] = tuple(sorted([*lightest, *kept]))
        return self._views[topic] != view

    def topics_by_node(self) -> dict[NodeId, tuple[TopicId, ...]]:
        """Every present member of any view, with the topics of the views that it is in, rising."""
        found: dict[NodeId, list[TopicId]] = {}
        for topic in self.topics:
            for node in self.present(topic):
                found.setdefault(node, []).append(topic)
        return {node: tuple(topics) for node, topics in found.items()}

    def _weigh(self, node: NodeId) -> int:
        weight = self._weights.get(node)
        if weight is None:
            if len(self._weights) >= KEPT_WEIGHTS:
                self._weights.clear()
            weight = self._weights[node] = weigh(self._node, node)
        return weight


def weigh(own: NodeId, other: NodeId) -> int:
    """The weight of a node for another one: uniform over 64 bits, and independent for every ordered pair.

    Source: StAN Listing 1, line 25, with a delimiter between the names, without which "1" + "23" is "12" + "3".
    """
    return int.from_bytes(hashlib.blake2b(b"%d/%d" % (own, other), digest_size=8).digest(), "big")
