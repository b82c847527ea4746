"""Draws the adversaries and their interests."""

from harness.experiment.form import AdversarySpec
from harness.workload.interests import InterestModel, Topics
from peer.core.randomness import NETWORK, substream


def draw_adversaries(spec: AdversarySpec, nodes: int, seed: int) -> frozenset[int]:
    """Return the nodes that misbehave: those that the experiment names, or a share of all, drawn uniformly.

    Args:
        spec: the section ``[adversary]``.
        nodes: number of nodes.
        seed: the seed of the run.
    """
    if spec.kind == "none":
        return frozenset()
    if spec.nodes:
        return frozenset(spec.nodes)
    draws = substream(seed, NETWORK, "adversaries")
    return frozenset(draws.sample(range(nodes), round(spec.ratio * nodes)))


class InfiltratedInterests:
    """The interests of a model, and for adversaries also the victim topics."""

    def __init__(self, model: InterestModel, adversaries: frozenset[int], victim_topics: Topics) -> None:
        self._model = model
        self._adversaries = adversaries
        self._victim_topics = victim_topics

    def draw(self, node: int, life: int) -> Topics:
        topics = self._model.draw(node, life)
        return tuple(sorted({*topics, *self._victim_topics})) if node in self._adversaries else topics


def infiltrate(model: InterestModel, spec: AdversarySpec, nodes: int, seed: int) -> InterestModel:
    """Return the interest model of a network with these adversaries."""
    adversaries = draw_adversaries(spec, nodes, seed)
    return InfiltratedInterests(model, adversaries, spec.victim_topics) if adversaries else model
