"""What each node knows at first in a run whose routing tables begin converged.

T-Man finds the nodes that a node would choose from all nodes, given enough rounds. A run that measures the overlay at
rest may begin there: the plan names to each node those that it would find, and the node itself chooses from them.
"""

from peer.core.identifiers import NodeId
from peer.core.ring import MASK, SPACE, RingOrder

STEPS = 96
"""Distances at which a node knows another one, from a whole turn of the ring to that of its neighbours: with 10,000
nodes each is 10 % longer than the next, within the tolerance of small-world links."""


def find_ring_contacts(nodes: int) -> list[tuple[NodeId, ...]]:
    """Return, for each of the nodes 0 .. ``nodes`` - 1, those on the ring that it would choose some links from.

    These are its successor and predecessor, and the nodes closest to ``STEPS`` distances that grow by a factor.
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
