"""The nodes that each node knows at the start of a run whose routing tables begin converged.

Given enough rounds, T-Man finds the nodes that a node would choose from all nodes. A run that measures the overlay at
rest may begin in that state: the plan names the nodes that each node would find, and the node chooses from them.
"""

from peer.core.identifiers import NodeId
from peer.protocols.tman.ring import MASK, SPACE, RingOrder

STEPS = 96
"""Number of distances at which a node knows another node, from the whole ring down to the distance of its neighbours.
With 10,000 nodes each is 10 % longer than the next, which is within the tolerance of small-world links."""


def find_ring_contacts(nodes: int) -> list[tuple[NodeId, ...]]:
    """Return, for each of the nodes 0 .. ``nodes`` - 1, the nodes from which it chooses its links on the ring.

    These are its successor and predecessor, and the nodes closest to ``STEPS`` distances in a geometric sequence.
    """
    order = RingOrder(range(nodes))
    reaches = [int(SPACE * nodes ** -(step / STEPS)) & MASK for step in range(1, STEPS + 1)]
    contacts: list[tuple[NodeId, ...]] = [()] * nodes
    for place, node in enumerate(order.nodes):
        key = order.keys[place]
        ahead = [order.nearest((key + reach) & MASK) for reach in reaches]
        known = (order.nodes[(place + 1) % nodes], order.nodes[place - 1], *ahead)
        contacts[node] = tuple(dict.fromkeys(peer for peer in known if peer is not None and peer != node))
    return contacts
