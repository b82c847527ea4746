"""Implicit group messaging: messages to all nodes whose attributes satisfy an expression.

A node's attributes are the keywords of its topics. Their Bloom filter is its *address*, a point on a torus. The nodes
divide the surface of the torus among themselves (``surface``, ``overlay``). The addresses that match an expression lie
in certain extents of the surface. CAST sends a message there from neighbour to neighbour. A copy branches at a node
from which the extents that it has not reached lie in different directions (``cast``).

Source: Cutting, Landfeldt, Quigley, Implicit group messaging in peer-to-peer networks;
docs/protocols/implicit-groups.md.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from peer.protocols.description import Composition, Description, ParameterError
from peer.protocols.implicit_groups.addressing.bloom import BloomScheme
from peer.protocols.implicit_groups.frames import GroupAlive
from peer.protocols.implicit_groups.parameters import ImplicitGroupsParameters
from peer.protocols.implicit_groups.placement import draw_initial_state
from peer.protocols.implicit_groups.repair import RepairedOverlay
from peer.protocols.implicit_groups.replay import ReplayingCast


def check(parameters: ImplicitGroupsParameters, nodes: int) -> None:
    """Raise an exception for parameters that do not fit together.

    Raises:
        ParameterError: there are more hashes than bits, equal branch factors in parallel, which would send the same
            copies twice, or more landmarks than nodes.
    """
    if len(set(parameters.parallel_branch_factors)) < len(parameters.parallel_branch_factors):
        raise ParameterError("parallel_branch_factors", "expected different values, got two that are equal")
    if parameters.prefix_bits and parameters.landmarks > nodes:
        raise ParameterError("landmarks", f"expected at most the {nodes} nodes, got {parameters.landmarks}")
    if parameters.hashes > parameters.address_bits:
        problem = f"expected at most address_bits = {parameters.address_bits}, got {parameters.hashes}"
        raise ParameterError("hashes", problem)


def predict_false_positives(section: Mapping[str, Any], attributes: int, lacking: tuple[int, ...]) -> float:
    """Return the probability that a node delivers a message although it does not satisfy the expression.

    The terms are assumed to be independent, which is an approximation if they share keywords.

    Args:
        section: the parameters, as in a plan.
        attributes: the number of keywords of the node.
        lacking: for each term the number of its keywords that the node lacks.
    """
    scheme = BloomScheme(section["address_bits"], section["hashes"])
    return 1 - prod(1 - scheme.false_positive_rate(attributes, missing) for missing in lacking)


PROTOCOL = Description(
    name="implicit-groups",
    composition=Composition(
        overlay={"name": "implicit-groups"},
        dissemination={"name": "implicit-groups"},
        interests="private",
        needs_interests=False,
    ),
    parts={"overlay": RepairedOverlay, "dissemination": ReplayingCast},
    parameters=ImplicitGroupsParameters,
    background_frames=(GroupAlive,),
    check=check,
    draw_initial_state=draw_initial_state,
    false_positive_rate=predict_false_positives,
)
