"""One ring per topic: every subscriber has a logical link to the next higher one, and the highest to the lowest.

It is a baseline of SpiderCast's evaluation. Every topic costs a node at most two links. Rings in which the same two
nodes are neighbours share a link. A message travels around its topic's ring in both directions.

Source: docs/protocols/similarity-and-rings.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.ring_per_topic.overlay import RingPerTopic, RingPerTopicParameters

PROTOCOL = Description(
    name="ring-per-topic",
    composition=Composition(
        overlay={"name": "ring-per-topic"}, dissemination={"name": "topic-flood", "whole": True}, interests="private"
    ),
    parts={"overlay": RingPerTopic},
    parameters=RingPerTopicParameters,
)
