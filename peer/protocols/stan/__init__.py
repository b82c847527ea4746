"""StAN: a random overlay for each topic, aligned so that the overlays share physical links.

A node has a view of each of its topics: nodes that subscribe to it. The plan draws the first views as a random graph
per topic. Periodic random walks inside a topic's overlay collect its subscribers, and the node keeps those with the
lowest weights, a hash of both nodes' names that is the same in all topics. So the views of different topics come to
hold the same nodes, which share a link, although no node tells another one its interests.

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
