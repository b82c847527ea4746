"""The similarity overlay, which SpiderCast's tasks keep."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from harness.planning.models.spidercast import link_maintained
from harness.planning.overlay_models import FirstLinks, Network, OverlayModel
from peer.protocols.similarity.overlay import AnyNodes, SimilarityParameters, SimilarNodes
from peer.protocols.spidercast.maintenance import Aim


def model_overlay(
    parameters: SimilarityParameters, network: Network, draws: Random, first_links: FirstLinks
) -> OverlayModel:
    """The links of both tasks."""
    kinds: list[Callable[[], Aim]] = [lambda: SimilarNodes(parameters.similar), lambda: AnyNodes(parameters.random)]
    return link_maintained(kinds, network, draws)
