"""HyParView's and Plumtree's frames. Each is about one swarm. Messages themselves are ``Data``."""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from peer.core.frames import Disclosure, Frame, register
from peer.core.identifiers import MessageId, NodeId, NodeNumber

SwarmId = int
"""A topic, whose subscribers are the swarm, or ``SHARED``."""

SHARED: SwarmId = -1
"""The swarm of all nodes."""

SwarmNumber = Annotated[int, Meta(ge=SHARED, lt=2**32)]
Hops = Annotated[int, Meta(ge=0, le=255)]


class SwarmFrame(Frame, frozen=True):
    """A frame between nodes of a swarm. It tells its receiver that the sender and the nodes that it names are in it."""

    swarm: SwarmNumber

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return () if self.swarm == SHARED else [(node, (self.swarm,)) for node in (sender, *self.named())]

    def named(self) -> Iterable[NodeId]:
        """Return the nodes that the frame names."""
        return ()


@register
class HyparviewJoin(SwarmFrame, frozen=True):
    """JOIN: the sender enters the swarm through the receiver. Source: HyParView Algorithm 1."""

    kind: ClassVar[int] = 100


@register
class HyparviewForwardJoin(SwarmFrame, frozen=True):
    """FORWARDJOIN: a random walk that introduces a node; ``ttl``: hops left. Source: HyParView Algorithm 1."""

    kind: ClassVar[int] = 101
    node: NodeNumber
    ttl: Hops

    def named(self) -> Iterable[NodeId]:
        return (self.node,)


@register
class HyparviewNeighbour(SwarmFrame, frozen=True):
    """NEIGHBOR: the sender asks to become a neighbour; only a request that is not ``urgent`` may be refused.

    Source: HyParView section 4, active view management.
    """

    kind: ClassVar[int] = 102
    urgent: bool


@register
class HyparviewAnswer(SwarmFrame, frozen=True):
    """The answer to a join or a request: whether the receiver is in the sender's active view. Not in the papers."""

    kind: ClassVar[int] = 103
    accepted: bool


@register
class HyparviewDisconnect(SwarmFrame, frozen=True):
    """DISCONNECT: the receiver is not in the sender's active view; ``stays``: the sender is in the swarm.

    ``nodes``: other nodes of the swarm, if the receiver was displaced; not in the papers.
    """

    kind: ClassVar[int] = 104
    stays: bool
    nodes: tuple[NodeNumber, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return SwarmFrame.disclosed(self, sender) if self.stays else ()

    def named(self) -> Iterable[NodeId]:
        return self.nodes


@register
class HyparviewShuffle(SwarmFrame, frozen=True):
    """SHUFFLE: a random walk with nodes that ``origin`` knows; ``ttl``: hops left, including this one."""

    kind: ClassVar[int] = 105
    origin: NodeNumber
    ttl: Hops
    nodes: tuple[NodeNumber, ...]

    def named(self) -> Iterable[NodeId]:
        return (self.origin, *self.nodes)


@register
class HyparviewShuffleReply(SwarmFrame, frozen=True):
    """SHUFFLEREPLY: nodes for the receiver's passive view."""

    kind: ClassVar[int] = 106
    nodes: tuple[NodeNumber, ...]

    def named(self) -> Iterable[NodeId]:
        return self.nodes


class Advert(Struct, frozen=True, array_like=True, gc=False):
    """A message that the sender of a ``PlumtreeIhave`` has. ``hops``: the hop count of a copy at the receiver."""

    message_id: MessageId
    hops: Hops


@register
class PlumtreeIhave(SwarmFrame, frozen=True):
    """IHAVE: messages that the sender has. Source: Plumtree Algorithm 1."""

    kind: ClassVar[int] = 107
    adverts: tuple[Advert, ...]


@register
class PlumtreeGraft(SwarmFrame, frozen=True):
    """GRAFT: the link is eager from now on; the receiver sends the message, if one is named. Source: Algorithm 2."""

    kind: ClassVar[int] = 108
    message_id: MessageId | None


@register
class PlumtreePrune(SwarmFrame, frozen=True):
    """PRUNE: the link is lazy from now on. Source: Plumtree Algorithm 1."""

    kind: ClassVar[int] = 109
