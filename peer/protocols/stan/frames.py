"""StAN's frames. Each names only topics that the receiver subscribes to, as far as its sender knows."""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.frames import Disclosure, Frame, register
from peer.core.identifiers import NodeId, NodeNumber, TopicNumber


@register
class StanCollect(Frame, frozen=True):
    """COLLECTNODES: a random walk through a topic's overlay. Source: StAN Listing 1, lines 3 and 5.

    ``nodes`` are in rising order.
    """

    kind: ClassVar[int] = 32
    origin: NodeNumber
    topic: TopicNumber
    ttl: Annotated[int, Meta(ge=0, le=255)]
    nodes: tuple[NodeNumber, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return ((node, (self.topic,)) for node in (sender, self.origin, *self.nodes))


@register
class StanReply(Frame, frozen=True):
    """COLLECTNODESREPLY: the nodes of a walk, for its originator. Source: StAN Listing 1, lines 14 and 16."""

    kind: ClassVar[int] = 33
    topic: TopicNumber
    nodes: tuple[NodeNumber, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return ((node, (self.topic,)) for node in (sender, *self.nodes))


@register
class StanRide(Frame, frozen=True):
    """All topics in whose views the sender has the receiver. It replaces earlier frames of the sender.

    Ours: from it both ends know which topics use a shared connection, and whether either end uses it.
    """

    kind: ClassVar[int] = 34
    own_topics: ClassVar[str] = "topics"
    topics: tuple[TopicNumber, ...]


@register
class StanQuit(Frame, frozen=True):
    """The sender does not subscribe any more to these topics, in whose views the receiver has it. Ours."""

    kind: ClassVar[int] = 35
    topics: tuple[TopicNumber, ...]
