"""The surface after all nodes have joined, and the copies that a CAST sends over it: by the protocol's own nodes."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from harness.planning.overlay_models import FullMembership, OverlayModel
from peer.core import schedule
from peer.core.contract import Effect, FrameReceived, LinkUp, NodeId, Publish, Send, SendEach, Started, message_id
from peer.core.frames import Data
from peer.protocols.description import FirstNetwork
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters
from peer.protocols.implicit_groups.placement import draw_initial_state


class SurfaceModel(OverlayModel, frozen=True):
    """The surface, with a node for each peer that knows its place and its neighbours.

    Attributes:
        nodes: the nodes, all linked as they should be.
    """

    nodes: Sequence[Any] = ()


def model_overlay(parameters: PlacedImplicitGroupsParameters, network: FullMembership) -> SurfaceModel:
    """Return the links between managers of adjacent extents, and between cohabitants and the managers of their address.

    Nodes have joined one after another in the order of a placed start. Shortcuts and links for a moment are left out.
    """
    count = len(network)
    interests = [tuple(sorted(network.topics_of(node))) for node in range(count)]
    placed = replace(parameters, start="placed", first_seed=None)
    first = draw_initial_state(FirstNetwork(interests, [True] * count, network.seed), placed)
    nodes = [network.make_node(node, start="placed", **given) for node, given in enumerate(first)]
    links: list[set[int]] = [set() for _ in nodes]
    for node, given in enumerate(first):
        for peer in (*given["linked"], *given["cohabitants"]):
            links[node].add(peer)
            links[peer].add(node)
    for node, core in enumerate(nodes):
        core.handle(0, Started())
        for peer in sorted(links[node]):
            core.handle(0, LinkUp(peer, node < peer))
    surfaces = [core.parts["overlay"].surface for core in nodes]
    for surface, given in zip(surfaces, first, strict=True):
        if surface.extents:
            for peer in given["linked"]:
                surface.keep(peer, surfaces[peer].extents)
    return SurfaceModel([sorted(others) for others in links], nodes=nodes)


def count_group_copies(model: SurfaceModel, sequence: int, publication: schedule.Publish) -> int:
    """Count the copies that nodes send of a message to an expression, duplicates included.

    Args:
        model: the surface; its nodes take the message.
        sequence: tells the counted messages apart.
        publication: whose message it is, and its expression or topics.
    """
    publisher = publication.node
    event = Publish(publication.topics, message_id(publisher, sequence), b"", publication.expression)
    sent = deque(_copies(publisher, model.nodes[publisher].handle(0, event)))
    copies = 0
    while sent:
        source, goal, frame = sent.popleft()
        copies += 1
        sent.extend(_copies(goal, model.nodes[goal].handle(0, FrameReceived(source, frame))))
    return copies


def _copies(source: NodeId, effects: Sequence[Effect]) -> Iterator[tuple[NodeId, NodeId, Data]]:
    for effect in effects:
        match effect:
            case Send(peer, Data() as frame):
                yield source, peer, frame
            case SendEach(peers, Data() as frame):
                yield from ((source, peer, frame) for peer in peers)
