"""Remarks in ``plan``, ``run`` and ``compare`` on experiments whose shape leaves little to compare."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from metrics.rundir.documents import views_of
from peer.protocols.registry import PROTOCOLS

Section = Mapping[str, Any]

NEARLY_ALL = 0.99
"""The share of the other hosts from which on a mean degree counts as all of them."""


def find_degeneracies(experiment: Section, degree: float | None) -> Iterator[str]:
    """Yield a sentence for everything that makes overlays alike, whatever their protocol.

    Args:
        experiment: the resolved experiment, with the number of hosts.
        degree: the mean number of physical links per node, predicted or measured; None = unknown.
    """
    hosts = experiment["underlay"].get("hosts") or 0  # 0 = the plan does not say
    protocol = PROTOCOLS.get(experiment["protocol"])
    by_design = protocol is not None and protocol.links_all
    if degree is not None and hosts > 2 and degree >= NEARLY_ALL * (hosts - 1) and not by_design:
        yield (
            f"nearly every node is linked with every other one (mean degree {degree:.3g} of {hosts - 1}): on a "
            "complete graph a message takes one hop; use more hosts or fewer links to compare overlays"
        )
    if _everybody_has_everything(experiment):
        yield "every node subscribes to every topic: no node relays, and overlays by interest have nothing to choose by"
    elif experiment["workload"]["topics"] == 1:
        yield "there is one topic: how nodes share links between topics does not show"
    for section in (experiment["protocol"], experiment["membership"]["kind"]):
        for key, size in asdict(views_of(experiment, section)).items():
            if size is not None and hosts and size >= hosts:
                yield f"{section}.{key} = {size} is more than the {hosts - 1} other nodes: a node may know all of them"


def _everybody_has_everything(experiment: Section) -> bool:
    interests, topics = experiment["interests"], experiment["workload"]["topics"]
    if interests["kind"] == "independent":
        return bool(interests["ratio"] == 1)
    return bool(interests["kind"] == "popularity" and interests["subscriptions_min"] == topics)
