"""The model of the similarity overlay, which SpiderCast's tasks maintain."""

from collections.abc import Callable

from harness.planning.models.spidercast import link_maintained
from harness.planning.overlay_models import FullMembership, OverlayModel
from peer.protocols.similarity.overlay import AnyNodes, SimilarityParameters, SimilarNodes
from peer.protocols.spidercast.maintenance import Aim


def model_overlay(parameters: SimilarityParameters, network: FullMembership) -> OverlayModel:
    """Return the links of both tasks."""
    kinds: list[Callable[[], Aim]] = [lambda: SimilarNodes(parameters.similar), lambda: AnyNodes(parameters.random)]
    return link_maintained(kinds, network)
