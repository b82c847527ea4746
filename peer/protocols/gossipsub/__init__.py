"""GossipSub: topic meshes on top of ambient connections, with gossip for repair and scores for protection.

The overlay (``mesh``) has the specification's peering state: connections, meshes, fanout, scores and the heartbeat.
The ``router`` adds messages, the message cache and gossip, and so fills the roles of overlay and dissemination. A mesh
also works with another dissemination.

``BOUNDED`` is another protocol: the GossipSub that the Topiary paper compares itself with, which has a bounded number
of links and no meshes (``bounded``).

Source: libp2p specifications, pubsub/gossipsub/gossipsub-v1.0.md and gossipsub-v1.1.md; docs/protocols/gossipsub.md.
"""

from peer.protocols.description import Composition, Description, Forgetting
from peer.protocols.gossipsub.bounded import BoundedGossipsub, GossipsubBoundedParameters
from peer.protocols.gossipsub.mesh import Mesh
from peer.protocols.gossipsub.parameters import GossipsubParameters
from peer.protocols.gossipsub.router import Router


def _forget(parameters: GossipsubParameters) -> Forgetting:
    """Return when nodes forget a message. The latest copy waits for the last heartbeat that announces it."""
    announced_s = parameters.mcache_gossip * parameters.heartbeat_interval_s
    return Forgetting("seen_ttl_s", parameters.seen_ttl_s, announced_s)


PROTOCOL = Description(
    name="gossipsub",
    composition=Composition(
        overlay={"name": "gossipsub"}, dissemination={"name": "gossipsub"}, interests="announced-only"
    ),
    parts={"overlay": Mesh, "dissemination": Router},
    parameters=GossipsubParameters,
    also_called=("gossip", "libp2p", "mesh"),
    forgetting=_forget,
)

BOUNDED = Description(
    name="gossipsub-bounded",
    composition=Composition(overlay={"name": "gossipsub-bounded"}),
    parts={"overlay": BoundedGossipsub},
    parameters=GossipsubBoundedParameters,
)
