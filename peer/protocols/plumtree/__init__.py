"""Plumtree over HyParView: broadcast trees embedded in symmetric partial views.

A *swarm* is a set of nodes that one overlay connects: the subscribers of a topic (``scope = "topic"``), or all nodes
(``scope = "shared"``). In each swarm HyParView gives a node a small active view, whose links are symmetric, and a
larger passive view from which lost links are replaced (``views``, ``swarm``). The swarms of a node share its physical
links (``overlay``). Plumtree sends messages at once over eager links. These become a spanning tree, since each
duplicate makes its link lazy. Over lazy links it only announces messages. A node that misses an announced message asks
for it, and so repairs the tree (``tree``, ``broadcast``).

Source: Leitao, Pereira, Rodrigues, HyParView (DSN 2007) and Epidemic Broadcast Trees (SRDS 2007);
docs/protocols/plumtree.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.plumtree.broadcast import Broadcast
from peer.protocols.plumtree.frames import HyparviewShuffle, HyparviewShuffleReply
from peer.protocols.plumtree.overlay import Hyparview
from peer.protocols.plumtree.parameters import PlumtreeParameters

PROTOCOL = Description(
    name="plumtree",
    composition=Composition(overlay={"name": "plumtree"}, dissemination={"name": "plumtree"}, interests="private"),
    parts={"overlay": Hyparview, "dissemination": Broadcast},
    parameters=PlumtreeParameters,
    also_called=("hyparview", "epidemic", "broadcast"),
    background_frames=(HyparviewShuffle, HyparviewShuffleReply),
)
