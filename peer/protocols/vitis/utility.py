"""The preference function: how much a node gains from a neighbour."""

from collections.abc import Sequence

from peer.core.contract import TopicId

MOST_CACHED = 512
"""Most utilities that a node remembers, and most topics of a node whose utility it remembers."""

Topics = frozenset[TopicId]


def rate_utility(shared: float, own: float, theirs: float) -> float:
    """Return the utility of a neighbour from the rates of the topics in common, of one's own and of its topics.

    Source: Vitis Equation 1.
    """
    return shared / (own + theirs - shared) if shared > 0 else 0.0


class Preference(dict[Topics, float]):
    """Utilities of other nodes, by their subscriptions; each is computed when it is asked for, and remembered.

    A node's utility is the rate of the topics that it shares with this one, over the rate of all topics of the two
    (``rate_utility``).

    Args:
        own: the subscriptions of this node.
        rates: relative publication rate of each topic; None = all are equal. Topics beyond it have rate 0.

    Source: Vitis Equation 1.
    """

    __slots__ = ("_own", "_rates", "_weight")

    def __init__(self, own: Topics, rates: Sequence[float] | None = None) -> None:
        super().__init__()
        self._own = own
        self._rates = rates
        self._weight = self._weigh(own)

    def __missing__(self, theirs: Topics) -> float:
        common = self._own & theirs
        if self._rates is None:
            utility = rate_utility(len(common), self._weight, len(theirs))
        else:
            utility = rate_utility(self._weigh(common), self._weight, self._weigh(theirs))
        if len(theirs) <= MOST_CACHED:  # a set of thousands is invented
            if len(self) >= MOST_CACHED:
                self.clear()
            self[theirs] = utility
        return utility

    def _weigh(self, topics: Topics) -> float:
        rates = self._rates
        if rates is None:
            return len(topics)
        return sum([rates[topic] for topic in sorted(topics) if topic < len(rates)])
