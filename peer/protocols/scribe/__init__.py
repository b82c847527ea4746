"""Scribe: a multicast tree per group over Pastry's prefix routing.

A group is a topic. Its root is the node whose key is nearest to the group's on Pastry's ring (``pastry``). A node that
subscribes asks the next node on the way there to be its parent, which asks on unless it is in the tree already
(``overlay``, ``forest``). Heartbeats run down from the root; a node that hears none looks for another parent.

A message goes up to the root and from there down the tree. ``multicast`` extends the overlay by that, and so fills the
roles of overlay and dissemination. The overlay alone carries the messages of another dissemination.

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
