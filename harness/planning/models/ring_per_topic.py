"""The model of the rings, with all nodes on them."""

from itertools import pairwise

from msgspec import Struct

from harness.planning.overlay_models import FullMembership, Logical, OverlayModel, carry
from peer.core.bitset import members


def model_overlay(parameters: Struct, network: FullMembership) -> OverlayModel:
    """Return the links between nodes that are next to each other on a ring."""
    rings: list[Logical] = [{} for _ in range(len(network))]
    for topic, subscribers in network.shared_topics():
        ring = list(members(subscribers))
        for node, successor in pairwise([*ring, ring[0]]):
            carry(rings, node, successor, topic)
    return OverlayModel.from_logical(rings)
