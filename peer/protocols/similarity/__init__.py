"""The similarity overlay: links to the nodes with the most similar interests, and to random nodes.

It is a baseline of SpiderCast's evaluation. It has SpiderCast's tasks and frames, but the aim is a number of neighbours
instead of coverage.

Source: docs/protocols/similarity-and-rings.md.
"""

from peer.protocols.description import Composition, Description
from peer.protocols.similarity.overlay import Similarity, SimilarityParameters
from peer.protocols.spidercast.frames import SpiderHeartbeat

PROTOCOL = Description(
    name="similarity",
    composition=Composition(
        overlay={"name": "similarity"}, dissemination={"name": "topic-flood", "whole": True}, interests="private"
    ),
    parts={"overlay": Similarity},
    parameters=SimilarityParameters,
    background_frames=(SpiderHeartbeat,),
)
