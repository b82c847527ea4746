"""Vitis's profile."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from peer.core.frames import Frame, register
from peer.core.identifiers import NodeNumber
from peer.protocols.tman.frames import Ring, Topics


class Proposal(Struct, frozen=True, array_like=True, gc=False):
    """A node's proposal of a gateway: the gateway, the neighbour that proposed it (``parent``), hops to the gateway."""

    gateway: NodeNumber
    parent: NodeNumber
    hops: Annotated[int, Meta(ge=0, le=255)]


@register
class VitisProfile(Frame, frozen=True):
    """A heartbeat: the sender's topics, its proposal of a gateway for each, and its neighbours on the ring.

    ``proposals`` are in rising order of the topics.
    """

    kind: ClassVar[int] = 114
    own_topics: ClassVar[str] = "topics"
    topics: Topics
    proposals: tuple[Proposal, ...]
    ring: Ring
