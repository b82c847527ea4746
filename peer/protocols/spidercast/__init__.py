"""SpiderCast: few neighbours that together share every topic of a node's interest K times.

Two tasks (``neighbour_task``) each keep a set of neighbours, one by greedy and one by random coverage (``coverage``). A
task asks nodes to become neighbours until it reaches its aim, and asks neighbours to disconnect if it has more than it
needs. ``maintained_overlay`` manages the links and heartbeats of both tasks, and the neighbours' interests. It works
with any aim; the similarity overlay uses it with another one. ``maintenance`` has the parameters and the interface of
an aim, ``overlay`` the two aims of SpiderCast. Read ``coverage``, ``maintenance``, ``neighbour_task``,
``maintained_overlay`` and ``overlay`` in this order.

Source: docs/protocols/spidercast.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.spidercast.frames import SpiderHeartbeat
from peer.protocols.spidercast.overlay import SpiderCast, SpidercastParameters

PROTOCOL = Description(
    name="spidercast",
    composition=Composition(
        overlay={"name": "spidercast"}, dissemination={"name": "topic-flood", "whole": True}, interests="private"
    ),
    parts={"overlay": SpiderCast},
    parameters=SpidercastParameters,
    background_frames=(SpiderHeartbeat,),
)
