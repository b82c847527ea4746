"""StAN's views: for each topic a fixed number of nodes, which have the lowest weights for the owner of the view."""

from collections.abc import Collection, Iterable
from hashlib import blake2b

from peer.core.contract import NodeId, TopicId

NOBODY: frozenset[NodeId] = frozenset()

KEPT_WEIGHTS = 256
"""Number of weights that are cached before the cache is cleared."""

FIRST_BYTE = 56
"""Number of bits after the first byte of a weight."""


class AlignedViews:
    """The views of one node, without their links.

    A view never changes its size, and never contains a node twice or its owner. A view that begins empty, because no
    other node subscribed yet, has room for one node. A member that is known to be gone keeps its place until another
    node takes it; meanwhile it is not *present*.

    Once views are aligned, almost all candidates weigh more than every member. So the first byte of every computed
    weight is kept, which suffices to reject most candidates. Whole weights are kept for few nodes only.

    Args:
        node: the owner of the views.
        views: (topic, nodes) of every view at the start.
    """

    __slots__ = ("_first_bytes", "_gone", "_heaviest", "_moved", "_node", "_views", "_weights")

    def __init__(self, node: NodeId, views: Iterable[tuple[TopicId, Iterable[NodeId]]] = ()) -> None:
        self._node = node
        self._views: dict[TopicId, tuple[NodeId, ...]] = {}
        self._gone: dict[TopicId, frozenset[NodeId]] = {}
        self._weights: dict[NodeId, int] = {}
        self._first_bytes = bytearray()  # of each node's weight; 0 = unknown or 0
        self._heaviest: dict[TopicId, int] = {}  # the greatest weight in the view
        self._moved: set[NodeId] = set()
        for topic, nodes in views:
            self.begin(topic, nodes)

    def __contains__(self, topic: TopicId) -> bool:
        return topic in self._views

    def __getitem__(self, topic: TopicId) -> tuple[NodeId, ...]:
        """Return the whole view of a topic, in rising order."""
        return self._views[topic]

    @property
    def topics(self) -> list[TopicId]:
        """The topics with a view, in rising order."""
        return sorted(self._views)

    def begin(self, topic: TopicId, nodes: Iterable[NodeId]) -> None:
        """Create the view of a topic with these nodes. Their number is its size from now on."""
        self._set(topic, {*nodes} - {self._node})

    def end(self, topic: TopicId) -> None:
        """Remove the view of a topic."""
        self._moved.update(self._views.pop(topic, ()))
        self._gone.pop(topic, None)
        self._heaviest.pop(topic, None)

    def is_empty(self, topic: TopicId) -> bool:
        """Return whether there is no view of a topic, or no node in it."""
        return not self._views.get(topic)

    def present(self, topic: TopicId) -> tuple[NodeId, ...]:
        """Return the members of a view that are not known to be gone, in rising order."""
        view, gone = self._views.get(topic, ()), self._gone.get(topic)
        return tuple([node for node in view if node not in gone]) if gone else view

    def miss(self, node: NodeId, topics: Iterable[TopicId]) -> bool:
        """Note that a node is gone from these topics. Return whether it was a present member of any."""
        left = [topic for topic in topics if node in self.present(topic)]
        for topic in left:
            self._gone[topic] = self._gone.get(topic, NOBODY) | {node}
            self._moved.add(node)
        return bool(left)

    def trust(self, node: NodeId, topics: Iterable[TopicId]) -> bool:
        """Note that a node subscribes to these topics. Return whether a view had it as a member that is gone."""
        back = [topic for topic in topics if node in self._gone.get(topic, NOBODY)]
        for topic in back:
            self._gone[topic] -= {node}
            self._moved.add(node)
        return bool(back)

    def align(self, topic: TopicId, nodes: Collection[NodeId]) -> bool:
        """Keep the lightest of these nodes and the members, as many as before. Return whether the view changed.

        It keeps members that are gone only if there are too few others.

        Source: StAN Listing 1, lines 16-22; "minimize the weights" (section 2), without this node itself.
        """
        view, gone = self._views[topic], self._gone.get(topic, NOBODY)
        if view and not gone:
            nodes = self._lighter(nodes, self._heaviest[topic])
        candidates = {*nodes, *view} - gone - {self._node}
        size = len(view) or 1
        if not gone and len(candidates) == len(view):
            return False  # the members are the only candidates
        lightest = sorted(candidates, key=self._weigh)[:size]
        kept = [node for node in view if node in gone][: size - len(lightest)]
        self._gone[topic] = frozenset(kept)
        self._set(topic, {*lightest, *kept})
        return self._views[topic] != view

    def take_moved(self) -> set[NodeId]:
        """Return the nodes that entered or left views, or are gone or back, since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def topics_of(self, node: NodeId) -> tuple[TopicId, ...]:
        """Return the topics of the views in which a node is present, in rising order."""
        topics = [topic for topic, view in self._views.items() if node in view]
        return tuple(sorted([topic for topic in topics if node not in self._gone.get(topic, NOBODY)]))

    def _set(self, topic: TopicId, nodes: set[NodeId]) -> None:
        """Replace the view of a topic by these nodes."""
        self._moved.update(nodes.symmetric_difference(self._views.get(topic, ())))
        self._views[topic] = tuple(sorted(nodes))
        self._heaviest[topic] = max(map(self._weigh, nodes), default=0)

    def _lighter(self, nodes: Collection[NodeId], heaviest: int) -> list[NodeId]:
        """Return the nodes that do not weigh more than this. They may include this node."""
        known, most = self._first_bytes, heaviest >> FIRST_BYTE
        if (missing := max(nodes, default=0) + 1 - len(known)) > 0:
            known.extend(bytes(missing))
        lighter = []
        for node in [node for node in nodes if known[node] <= most]:
            weight = self._weights.get(node) or weigh(self._node, node)
            known[node] = weight >> FIRST_BYTE
            if weight <= heaviest:
                lighter.append(node)
        return lighter

    def _weigh(self, node: NodeId) -> int:
        weight = self._weights.get(node)
        if weight is None:
            if len(self._weights) >= KEPT_WEIGHTS:
                self._weights.clear()
            weight = self._weights[node] = weigh(self._node, node)
        return weight


def weigh(own: NodeId, other: NodeId) -> int:
    """Return the weight of a node for another node: uniform over 64 bits, and independent for every ordered pair.

    Source: StAN Listing 1, line 25, with a delimiter between the names, so that "1" + "23" is not "12" + "3".
    """
    return int.from_bytes(blake2b(b"%d/%d" % (own, other), digest_size=8).digest(), "big")
