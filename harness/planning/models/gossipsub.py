"""GossipSub's meshes, and the copies that go through them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from harness.planning.copies import Subscribed, links_of, spread_once
from harness.planning.overlay_models import FirstLinks, Logical, Network, OverlayModel, carry
from peer.core.bitset import bitset, members, sample
from peer.protocols.gossipsub.parameters import GossipsubParameters


def model_overlay(
    parameters: GossipsubParameters, network: Network, draws: Random, first_links: FirstLinks
) -> OverlayModel:
    """Meshes over connections drawn at random, and over such as are sought where a mesh lacks peers."""
    links = first_links()
    meshes: list[Logical] = [{} for _ in range(len(network))]
    for topic, subscribers in network.shared_topics():
        mesh: dict[int, set[int]] = {node: set() for node in members(subscribers)}
        for node in network.shuffled(subscribers, draws):
            if len(mesh[node]) >= parameters.chosen.d_lo:
                continue
            around = [peer for peer in links[node] if peer in mesh]
            if parameters.discovery == "topics" and len(around) < parameters.d:
                fresh = subscribers & ~bitset([node, *around])
                for peer in members(sample(fresh, parameters.d - len(around), draws)):
                    links[node].append(peer)
                    links[peer].append(node)
                    around.append(peer)
            fit = [peer for peer in around if peer not in mesh[node] and len(mesh[peer]) < parameters.d_hi]
            for peer in draws.sample(fit, min(parameters.d - len(mesh[node]), len(fit))):
                mesh[node].add(peer)
                mesh[peer].add(node)
                carry(meshes, node, peer, topic)
    return OverlayModel(links, meshes)


def count_copies(
    parameters: GossipsubParameters, model: OverlayModel, subscribed: Subscribed, publisher: int, topics: frozenset[int]
) -> int:
    """First copies go on through the topics' meshes; the publisher's own perhaps to all subscribers that it knows.

    What gossip brings is not counted: it repairs. Nor is what IDONTWANT spares.
    """
    interested = [other for other in model.neighbours[publisher] if not subscribed[other].isdisjoint(topics)]

    def receivers(node: int) -> Iterator[int]:
        meshes = (other for other, carried in links_of(model, subscribed, node) if topics & carried)
        eager = interested if node == publisher and parameters.chosen.flood_publish else meshes
        return (other for other in eager if other != publisher)

    return spread_once(publisher, receivers)
