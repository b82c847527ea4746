"""Implicit group messaging: messages to all nodes whose attributes satisfy an expression.

A node's attributes are the keywords of its topics. Their Bloom filter is its *address*, a point on a torus, whose
surface the nodes divide among themselves (``surface``, ``overlay``). The addresses that match an expression lie in
certain extents of the surface. CAST sends a message there from neighbour to neighbour; a copy branches where the
extents that it has not reached lie in different directions (``cast``).

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
    """Refuse parameters that make no sense.

    These are more hashes than bits, equal branch factors in parallel, which would send the same copies twice, and more
    landmarks than nodes.

    Raises:
        ParameterError: one of them.
    """
    if len(set(parameters.parallel_branch_factors)) < len(parameters.parallel_branch_factors):
        raise ParameterError("parallel_branch_factors", "two are equal")
    if parameters.prefix_bits and parameters.landmarks > nodes:
        raise ParameterError("landmarks", f"{parameters.landmarks} of {nodes} nodes")
    if parameters.hashes > parameters.address_bits:
        raise ParameterError("hashes", f"{parameters.hashes} of {parameters.address_bits} bits")


def predict_false_positives(section: Mapping[str, Any], attributes: int, lacking: tuple[int, ...]) -> float:
    """Predict how likely a node takes a message for its own although it does not satisfy the expression.

    Terms are taken as independent, which is an approximation where they share keywords.

    Args:
        section: the parameters, as a plan has them.
        attributes: how many keywords the node has.
        lacking: for each term how many of its keywords the node does not have.
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
