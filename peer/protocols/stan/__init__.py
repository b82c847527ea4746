"""StAN: one random overlay per topic, aligned so that the overlays share physical links.

A node has one view per topic, with nodes that subscribe to the topic. The plan draws the first views as a random graph
per topic. Periodic random walks in a topic's overlay collect its subscribers, and the node keeps those with the lowest
weights. A weight is a hash of both nodes' names and is the same in all topics. So the views of different topics contain
more and more of the same nodes, which share a link, although no node tells another node its interests.

Source: docs/protocols/stan.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.stan.initial_views import draw_initial_state
from peer.protocols.stan.overlay import Stan
from peer.protocols.stan.parameters import StanParameters

PROTOCOL = Description(
    name="stan",
    composition=Composition(
        overlay={"name": "stan"}, dissemination={"name": "topic-flood"}, interests="private", needs_interests=False
    ),
    parts={"overlay": Stan},
    parameters=StanParameters,
    draw_initial_state=draw_initial_state,
)
