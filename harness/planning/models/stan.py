"""The model of StAN's overlay, after nodes have found the lightest subscribers of each topic."""

import math

import numpy as np

from harness.planning.overlay_models import FullMembership, Logical, OverlayModel, carry
from peer.core.bitset import members
from peer.protocols.stan.parameters import PlacedStanParameters


def model_overlay(parameters: PlacedStanParameters, network: FullMembership) -> OverlayModel:
    """Return the views after nodes have found the lightest subscribers of each topic."""
    views: list[Logical] = [{} for _ in range(len(network))]
    weights = np.random.Generator(np.random.PCG64(network.draws.getrandbits(128)))
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
