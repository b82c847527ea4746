"""StAN's overlay, when nodes have found the lightest of each topic's subscribers."""

from __future__ import annotations

import math
from random import Random

import numpy as np

from harness.planning.overlay_models import FirstLinks, Logical, Network, OverlayModel, carry
from peer.core.bitset import members
from peer.protocols.stan.parameters import PlacedStanParameters


def model_overlay(
    parameters: PlacedStanParameters, network: Network, draws: Random, first_links: FirstLinks
) -> OverlayModel:
    """The views when nodes have found the lightest of each topic's subscribers."""
    views: list[Logical] = [{} for _ in range(len(network))]
    weights = np.random.Generator(np.random.PCG64(draws.getrandbits(128)))
    members_of = {topic: np.array(list(members(subscribers))) for topic, subscribers in network.shared_topics()}
    for node in range(len(network)):
        weigh = weights.random(len(network))
        weigh[node] = math.inf
        for topic in sorted(network.topics_of(node) & members_of.keys()):
            others = members_of[topic]
            size = min(len(others) - 1, max(1, round(parameters.degree_factor * math.log(len(others)))))
            lightest = others[np.argpartition(weigh[others], size - 1)[:size]]
            for peer in sorted(lightest.tolist()):
                carry(views, node, peer, topic, both=parameters.both_directions)
    return OverlayModel.from_logical(views)
