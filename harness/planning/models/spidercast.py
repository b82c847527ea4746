"""The model of SpiderCast's overlay, and of other protocols with its tasks."""

from collections.abc import Callable, Iterable

from harness.planning.overlay_models import FullMembership, OverlayModel
from peer.core.bitset import Bitset, members
from peer.protocols.spidercast.coverage import GreedyCoverage, RandomCoverage
from peer.protocols.spidercast.maintenance import Aim
from peer.protocols.spidercast.overlay import SpidercastParameters


def model_overlay(parameters: SpidercastParameters, network: FullMembership) -> OverlayModel:
    """Return the links of both tasks."""
    kinds: list[Callable[[], Aim]] = [
        lambda: GreedyCoverage(parameters.greedy_coverage, fair=parameters.ties == "random"),
        lambda: RandomCoverage(parameters.random_coverage),
    ]
    return link_maintained(kinds, network)


def link_maintained(kinds: Iterable[Callable[[], Aim]], network: FullMembership) -> OverlayModel:
    """Return the links of independent tasks that give up no link."""
    linked = [0] * len(network)
    for kind in kinds:
        for node, others in enumerate(_reach(kind, network)):
            linked[node] |= others
    return OverlayModel([list(members(others)) for others in linked])


def _reach(kind: Callable[[], Aim], network: FullMembership) -> list[Bitset]:
    """Model one task: each node opens links to nodes below their limit until it has reached its aim.

    Links that nodes accept beyond the limit (``margin``) are left out, since they are closed again.
    """
    aims, linked = [kind() for _ in range(len(network))], [0] * len(network)
    for node, aim in enumerate(aims):
        aim.recount(network.topics_of(node), ())
    room = network.nodes
    for node in network.shuffled(network.nodes):
        aim = aims[node]
        while aim.wanted and aim.missing():
            peer = aim.next_node(network, room & ~linked[node] & ~(1 << node), network.draws)
            if peer is None:
                break
            for one, other in ((node, peer), (peer, node)):
                linked[one] |= 1 << other
                aims[one].add(network.topics_of(other))
                if linked[one].bit_count() >= aims[one].limit:
                    room &= ~(1 << one)
    return linked
