"""Scribe: a multicast tree per group over Pastry's prefix routing.

A group is a topic. Its root is the node whose key is closest to the group's key on Pastry's ring (``pastry``). A node
that subscribes asks the next node on the way to the root to be its parent. That node asks its own next node, unless it
is in the tree already (``overlay``, ``forest``). The root sends heartbeats down the tree. A node that receives none
looks for another parent.

A message goes up to the root and from there down the tree. ``multicast`` adds that to the overlay, and so fills the
roles of overlay and dissemination. The overlay also works with another dissemination.

Source: docs/protocols/scribe.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.scribe.frames import ScribeHeartbeat
from peer.protocols.scribe.multicast import Multicast
from peer.protocols.scribe.overlay import Scribe
from peer.protocols.scribe.parameters import ScribeParameters

PROTOCOL = Description(
    name="scribe",
    composition=Composition(overlay={"name": "scribe"}, dissemination={"name": "scribe"}, interests="announced-only"),
    parts={"overlay": Scribe, "dissemination": Multicast},
    parameters=ScribeParameters,
    also_called=("pastry", "dht", "multicast"),
    background_frames=(ScribeHeartbeat,),
)
