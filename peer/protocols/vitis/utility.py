"""The preference function: how much a node gains from a neighbour."""

from collections.abc import Sequence

from peer.core.contract import TopicId

MOST_CACHED = 512
"""Most utilities that a node remembers."""

Topics = frozenset[TopicId]


class Preference:
    """Utilities of other nodes, by their subscriptions.

    Args:
        own: the subscriptions of this node.
        rates: relative publication rate of each topic; None = all are equal. Topics beyond it have rate 0.

    Source: Vitis Equation 1.
    """

    __slots__ = ("_cached", "_own", "_rates", "_weight")

    def __init__(self, own: Topics, rates: Sequence[float] | None = None) -> None:
        self._own = own
        self._rates = rates
        self._weight = self._weigh(own)
        self._cached: dict[Topics, float] = {}

    def utility(self, theirs: Topics) -> float:
        """Return the rate of the shared topics as a share of the rate of all topics of the two nodes."""
        known = self._cached.get(theirs)
        if known is None:
            common = self._own & theirs
            if self._rates is None:  # without calls: most utilities are computed once
                shared: float = len(common)
                either = self._weight + len(theirs) - shared
            else:
                shared = self._weigh(common)
                either = self._weight + self._weigh(theirs) - shared
            known = shared / either if shared > 0 else 0.0
            if len(self._cached) >= MOST_CACHED:
                self._cached.clear()
            self._cached[theirs] = known
        return known

    def _weigh(self, topics: Topics) -> float:
        rates = self._rates
        if rates is None:
            return len(topics)
        return sum([rates[topic] for topic in sorted(topics) if topic < len(rates)])
