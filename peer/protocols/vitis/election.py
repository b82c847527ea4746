"""The election of a topic's gateway: each node of a cluster updates its proposal from those of its neighbours."""

from collections.abc import Container, Mapping

from peer.core.contract import NodeId, TopicId
from peer.protocols.tman.ring import MASK, SPACE, node_key, topic_key
from peer.protocols.vitis.frames import Proposal


def elect(
    node: NodeId,
    topic: TopicId,
    offers: Mapping[NodeId, Proposal],
    *,
    most_hops: int,
    failed: Container[NodeId] = (),
    parent: NodeId | None = None,
) -> Proposal:
    """Return a node's proposal for a topic.

    A neighbour's proposal counts if the neighbour is the gateway itself, or got the proposal from a node that is not
    this node's neighbour: otherwise this node gets it from that node, too. Ours: a proposal does not count if its
    parent is this node, or if its gateway has just failed. With the listing alone, neighbours keep proposing a failed
    gateway until its hops exceed the limit.

    Args:
        node: this node, which proposes itself at first.
        topic: the topic.
        offers: the latest proposal of each neighbour that subscribes to the topic.
        most_hops: most hops from a node to its gateway (d).
        failed: the nodes that this node has just lost.
        parent: the neighbour whose proposal this node follows now. It stays if no other is better; otherwise proposals
            would go on changing although gateways do not.

    Source: Vitis Algorithm 5, lines 3-18.
    """
    best, key = Proposal(node, node, 0), topic_key(topic)
    gap = (node_key(node) - key) & MASK  # rank() without calls, here and below
    least = min(gap, SPACE - gap), node
    first = [(parent, offers[parent])] if parent is not None and parent in offers else []
    for neighbour, offer in (*first, *offers.items()):
        origin, gateway = offer.parent, offer.gateway
        if origin != neighbour and (origin == node or origin in offers):
            continue
        hops = offer.hops + 1
        if hops > most_hops:
            continue
        if gateway == best.gateway:
            if hops < best.hops:
                best = Proposal(gateway, neighbour, hops)
            continue
        gap = (node_key(gateway) - key) & MASK
        place = min(gap, SPACE - gap), gateway
        if place < least and gateway not in failed:
            best, least = Proposal(gateway, neighbour, hops), place
    return best
