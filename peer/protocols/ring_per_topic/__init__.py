"""A ring for each topic: every subscriber has a logical link to the next higher one, the highest to the lowest.

A baseline of SpiderCast's evaluation, in which every topic costs a node two links at most. Rings on which the same two
nodes are neighbours share a link. A message goes both ways around its topic's ring.

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
