"""HyParView's active views, and the copies that go along Plumtree's trees."""

from collections.abc import Iterator

from harness.planning.copies import Subscribed
from harness.planning.overlay_models import FullMembership, Logical, OverlayModel, carry
from peer.core.bitset import Bitset, choose, members
from peer.protocols.plumtree.parameters import PlumtreeParameters


def model_overlay(parameters: PlumtreeParameters, network: FullMembership) -> OverlayModel:
    """Return views whose members are drawn at random among nodes that have a place left."""
    if parameters.scope == "shared":
        links: list[list[int]] = [[] for _ in range(len(network))]
        for node, peer in _draw_links(network.known, parameters.active_view, network):
            links[node].append(peer)
            links[peer].append(node)
        return OverlayModel(links)
    views: list[Logical] = [{} for _ in range(len(network))]
    for topic, subscribers in network.shared_topics():
        for node, peer in _draw_links(subscribers, parameters.active_view, network):
            carry(views, node, peer, topic)
    return OverlayModel.from_logical(views)


def _draw_links(among: Bitset, size: int, network: FullMembership) -> Iterator[tuple[int, int]]:
    """Yield the links of a swarm: no node has more than ``size``, and no pair has two."""
    linked, room = dict.fromkeys(members(among), 0), among
    for node in network.shuffled(among):
        while linked[node].bit_count() < size and (fit := room & ~linked[node] & ~(1 << node)):
            peer = choose(fit, network.draws)
            for one, other in ((node, peer), (peer, node)):
                linked[one] |= 1 << other
                if linked[one].bit_count() >= size:
                    room &= ~(1 << one)
            yield node, peer


def count_copies(
    parameters: PlumtreeParameters, model: OverlayModel, subscribed: Subscribed, publisher: int, topics: frozenset[int]
) -> int:
    """Return the copies: one per link of a tree, and one more for duplicates of the first messages, which form it.

    How many duplicates there are for each message depends on how many messages follow on the same topic.
    """
    if parameters.scope == "shared":
        reached = [len(subscribed) - 1]
    else:
        others = [own for node, own in enumerate(subscribed) if node != publisher]
        reached = [sum(topic in own for own in others) for topic in topics]
    return sum(min(2 * nodes, nodes * nodes) for nodes in reached)
