"""GossipSub's control messages. A node sends at most one frame of each kind per peer and instant.

Control messages are not piggybacked on data frames, so that reports can distinguish control bytes from payload.
"""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from peer.core.contract import MessageId, TopicId
from peer.core.frames import Frame, register

Natural = Annotated[int, Meta(ge=0)]


class Pruned(Struct, frozen=True, array_like=True):
    """One topic of a ``Prune``.

    ``backoff_ms``: the time for which the receiver must not graft again; 0 = not given. ``peers``: other nodes that it
    may connect to instead (peer exchange).
    """

    topic: TopicId
    backoff_ms: Natural = 0
    peers: tuple[Natural, ...] = ()


class Advert(Struct, frozen=True, array_like=True):
    """One topic of an ``Ihave``: messages that the sender has."""

    topic: TopicId
    message_ids: tuple[MessageId, ...]


@register
class Graft(Frame, frozen=True):
    """The sender has put the receiver into its meshes of these topics."""

    kind: ClassVar[int] = 60
    own_topics: ClassVar[str] = "topics"
    topics: tuple[TopicId, ...]


@register
class Prune(Frame, frozen=True):
    """The sender has removed the receiver from its meshes of these topics, or refused to add it."""

    kind: ClassVar[int] = 61
    pruned: tuple[Pruned, ...]


@register
class Ihave(Frame, frozen=True):
    """Gossip: messages that the sender has seen lately."""

    kind: ClassVar[int] = 62
    adverts: tuple[Advert, ...]


@register
class Iwant(Frame, frozen=True):
    """Asks for messages that the receiver advertised."""

    kind: ClassVar[int] = 63
    message_ids: tuple[MessageId, ...]


@register
class Idontwant(Frame, frozen=True):
    """The sender has these messages: the receiver need not send them."""

    kind: ClassVar[int] = 64
    message_ids: tuple[MessageId, ...]
