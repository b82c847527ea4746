"""The model of OPT's overlay: the routing tables of nodes that know many others."""

from msgspec import Struct

from harness.planning.overlay_models import FullMembership, OverlayModel


def model_overlay(parameters: Struct, network: FullMembership) -> OverlayModel:
    """Return the links of the routing tables."""
    return OverlayModel(network.selected_links())
