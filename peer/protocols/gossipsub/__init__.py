"""GossipSub: topic meshes on top of ambient connections, repaired by gossip and guarded by scores.

Two parts share the work. The overlay (``mesh``) holds the specification's peering state: connections, meshes, fanout,
scores and the heartbeat. The dissemination (``router``) rides on it: messages, the message cache and gossip.

``BOUNDED`` is another protocol: GossipSub as the Topiary paper compares itself with, which has a bounded number of
links and no meshes (``bounded``).

Source: libp2p specifications, pubsub/gossipsub/gossipsub-v1.0.md and gossipsub-v1.1.md; docs/protocols/gossipsub.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.gossipsub.bounded import BoundedGossipsub, GossipsubBoundedParameters
from peer.protocols.gossipsub.mesh import Mesh
from peer.protocols.gossipsub.parameters import GossipsubParameters
from peer.protocols.gossipsub.router import Router

PROTOCOL = Description(
    name="gossipsub",
    composition=Composition(
        overlay={"name": "gossipsub"}, dissemination={"name": "gossipsub"}, interests="announced-only"
    ),
    parts={"overlay": Mesh, "dissemination": Router},
    parameters=GossipsubParameters,
)

BOUNDED = Description(
    name="gossipsub-bounded",
    composition=Composition(overlay={"name": "gossipsub-bounded"}),
    parts={"overlay": BoundedGossipsub},
    parameters=GossipsubBoundedParameters,
)
