"""SpiderCast's overlay, and those of other protocols that keep neighbours by its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from harness.planning.overlay_models import FirstLinks, Network, OverlayModel
from peer.core.bitset import Bitset, members
from peer.protocols.spidercast.coverage import GreedyCoverage, RandomCoverage
from peer.protocols.spidercast.maintenance import Aim
from peer.protocols.spidercast.overlay import SpidercastParameters


def model_overlay(
    parameters: SpidercastParameters, network: Network, draws: Random, first_links: FirstLinks
) -> OverlayModel:
    """The links of both tasks."""
    kinds: list[Callable[[], Aim]] = [
        lambda: GreedyCoverage(parameters.greedy_coverage, fair=parameters.ties == "random"),
        lambda: RandomCoverage(parameters.random_coverage),
    ]
    return link_maintained(kinds, network, draws)


def link_maintained(kinds: Iterable[Callable[[], Aim]], network: Network, draws: Random) -> OverlayModel:
    """The links of independent tasks, none of which is given up again."""
    linked = [0] * len(network)
    for kind in kinds:
        for node, others in enumerate(_reach(kind, network, draws)):
            linked[node] |= others
    return OverlayModel([list(members(others)) for others in linked])


def _reach(kind: Callable[[], Aim], network: Network, draws: Random) -> list[Bitset]:
    """One task: each node links until it has reached its aim, with those that are below their limit.

    What nodes accept beyond the limit (``margin``) they part with again.
    """
    aims, linked = [kind() for _ in range(len(network))], [0] * len(network)
    for node, aim in enumerate(aims):
        aim.recount(network.topics_of(node), ())
    room = network.nodes
    for node in network.shuffled(network.nodes, draws):
        aim = aims[node]
        while aim.wanted and aim.missing():
            peer = aim.next_node(network, room & ~linked[node] & ~(1 << node), draws)
            if peer is None:
                break
            for one, other in ((node, peer), (peer, node)):
                linked[one] |= 1 << other
                aims[one].add(network.topics_of(other))
                if linked[one].bit_count() >= aims[one].limit:
                    room &= ~(1 << one)
    return linked
