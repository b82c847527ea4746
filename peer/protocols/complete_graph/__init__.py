"""The complete overlay: a link between any two nodes.

The node with the lower number opens the link. Every message reaches every subscriber directly, but each node needs
n - 1 links. It is the reference for delays in small networks.
"""

from peer.protocols.complete_graph.overlay import CompleteGraph
from peer.protocols.description import Composition, Description

PROTOCOL = Description(
    name="complete",
    composition=Composition(overlay={"name": "complete"}),
    parts={"overlay": CompleteGraph},
    links_all=True,
)
