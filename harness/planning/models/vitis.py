"""The model of Vitis's overlay: the routing tables of nodes that know many others."""

from msgspec import Struct

from harness.planning.overlay_models import FullMembership, OverlayModel


def model_overlay(parameters: Struct, network: FullMembership) -> OverlayModel:
    """Return the links of the routing tables. Relay paths are left out."""
    return OverlayModel(network.selected_links())
