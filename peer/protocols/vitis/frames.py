"""Vitis's profile."""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from peer.core.frames import Disclosure, Frame, register
from peer.core.identifiers import NodeId, NodeNumber, TopicNumber
from peer.core.tman.frames import Ring


class Proposal(Struct, frozen=True, array_like=True, gc=False):
    """A node's proposal of a gateway: the gateway, the neighbour that proposed it (``parent``), hops to the gateway."""

    gateway: NodeNumber
    parent: NodeNumber
    hops: Annotated[int, Meta(ge=0, le=255)]


@register
class VitisProfile(Frame, frozen=True):
    """A heartbeat: the sender's topics, each with its proposal of a gateway, and its neighbours on the ring."""

    kind: ClassVar[int] = 114
    proposals: dict[TopicNumber, Proposal]
    ring: Ring

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return ((sender, self.proposals),)
