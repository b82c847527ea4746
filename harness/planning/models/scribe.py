"""The model of Scribe: its trees, and the copies that they carry."""

from collections.abc import Iterator

from harness.planning.copies import Subscribed, spread_by_topics
from harness.planning.overlay_models import FullMembership, Logical, OverlayModel, carry
from peer.core.bitset import Bitset, bitset, members
from peer.protocols.scribe.parameters import ScribeParameters
from peer.protocols.scribe.pastry import Pastry, make_key


def model_overlay(parameters: ScribeParameters, network: FullMembership) -> OverlayModel:
    """Return the trees of routes to the groups' roots, without a limit on neighbours."""
    routing = [Pastry(node, parameters.digit_bits, parameters.leaf_set) for node in range(len(network))]
    trees: list[Logical] = [{} for _ in routing]
    for group, subscribers in _groups(parameters, network):
        key, inside = make_key(f"group/{group}"), set()
        for member in members(subscribers):
            node: int | None = member
            while node is not None and node not in inside:
                inside.add(node)
                parent = routing[node].next_hop(key, network.nodes & ~(1 << node))
                if parent is not None:
                    carry(trees, node, parent, group)
                node = parent
    return OverlayModel.from_logical(trees)


def _groups(parameters: ScribeParameters, network: FullMembership) -> Iterator[tuple[int, Bitset]]:
    """Yield the groups and their members; random groups have equal sizes."""
    if parameters.grouping == "topic":
        yield from network.shared_topics()
    else:
        for group in range(parameters.groups):
            yield group, bitset(range(group, len(network), parameters.groups))


def count_copies(
    parameters: ScribeParameters, model: OverlayModel, subscribed: Subscribed, publisher: int, topics: frozenset[int]
) -> int:
    """Count one copy per link of a group's tree, without the second copy between publisher and root."""
    groups = topics if parameters.grouping == "topic" else frozenset({publisher % parameters.groups})
    return spread_by_topics(model, subscribed, publisher, groups)
