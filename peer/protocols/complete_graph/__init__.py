"""The complete overlay: a link between any two nodes.

Of two nodes the one with the lower number opens the link. Every message reaches every subscriber directly, at the price
of n - 1 links per node: the reference for delays, for small networks.
"""

from peer.protocols.complete_graph.overlay import CompleteGraph
from peer.protocols.description import Composition, Description

PROTOCOL = Description(
    name="complete",
    composition=Composition(overlay={"name": "complete"}),
    parts={"overlay": CompleteGraph},
    links_all=True,
)
