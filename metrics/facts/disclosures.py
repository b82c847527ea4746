"""Collect what adversaries that ask conclude about the topics of other nodes, by their ``disclose`` events."""

from collections.abc import Iterable, Mapping

from metrics.facts.population import add_node
from metrics.measures.attacks import Disclosure, measure_disclosure
from peer.core.bitset import Bitset


class Conclusions:
    """The conclusions of nodes, in any order. A conclusion may be wrong, and counts once."""

    def __init__(self) -> None:
        self._concluded: dict[int, dict[int, Bitset]] = {}

    def add(self, asker: int, node: int, topics: Iterable[int]) -> None:
        """Add a conclusion.

        Args:
            asker: the node that concluded it.
            node: the node that it is about.
            topics: the topics to which this node subscribes, as the asker believes.
        """
        add_node(self._concluded.setdefault(asker, {}), topics, node)

    def measure(
        self, askers: Iterable[int], subscribers: Mapping[int, Bitset], adversaries: Iterable[int]
    ) -> list[Disclosure]:
        """Compare the conclusions of some adversaries with the subscriptions.

        Args:
            askers: the adversaries that ask, with or without conclusions.
            subscribers: topic to the nodes that subscribed at any time.
            adversaries: all nodes that misbehave.
        """
        concluded = {asker: self._concluded.get(asker, {}) for asker in askers}
        return measure_disclosure(concluded, subscribers, adversaries)
