"""The frames that nodes exchange, as values. ``peer.wire`` turns them into bytes.

A frame's class has its kind. Kinds 1-15 belong to links and interests, 16-31 to messages, 32-191 to the overlay and
membership protocols of Trellis, and ``USER_KINDS`` to protocols of plugins. Each protocol registers its own frames.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct

from peer.core.identifiers import NodeId, TopicId

Disclosure = tuple[NodeId, Iterable[TopicId]]
"""A node and topics that it subscribes to."""

UNLIMITED_TTL = 255
"""The TTL of a message that no rule decrements."""

USER_KINDS = range(192, 256)
"""The kinds of frames of protocols that are not in this repository (``peer.plugins``)."""

_TYPES: dict[int, type[Frame]] = {}


class Frame(Struct, frozen=True, gc=False):
    """The base of every frame. Subclasses set their ``kind`` and declare the fields of their body.

    Attributes:
        own_topics: the name of the field with topics that the sender subscribes to; "" = there is none.
    """

    kind: ClassVar[int] = 0
    own_topics: ClassVar[str] = ""

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        """Return the subscriptions that the frame discloses to its receiver: the sender's and other nodes'."""
        return ((sender, getattr(self, self.own_topics) or ()),) if self.own_topics else ()

    def count_body_bytes(self) -> int | None:
        """Return the body's length on the wire in bytes; None = the codec must encode the frame to count them."""
        return None


def register(frame_type: type[Frame]) -> type[Frame]:
    """Register a frame type with the codec (a class decorator).

    Raises:
        ValueError: the kind is out of 1-255 or taken.
    """
    kind = frame_type.kind
    if not 1 <= kind <= 255:
        raise ValueError(f"{frame_type.__name__}: kind {kind} is not in 1-255")
    if kind in _TYPES:
        raise ValueError(f"{frame_type.__name__}: kind {kind} belongs to {_TYPES[kind].__name__}")
    _TYPES[kind] = frame_type
    return frame_type


def frame_type(kind: int) -> type[Frame] | None:
    """Return the frame type of a kind; None if no protocol registered it."""
    return _TYPES.get(kind)


def kind_names() -> dict[int, str]:
    """Return every registered kind with its frame's name in lower case, for reports and the dissector."""
    return {kind: frame_type.__name__.lower() for kind, frame_type in sorted(_TYPES.items())}


@register
class Hello(Frame, frozen=True):
    """The first frame of each side of a link: the sender's number and run."""

    kind: ClassVar[int] = 1
    node: int
    run: int


@register
class Bye(Frame, frozen=True):
    """The last frame of a side that closes a link on purpose."""

    kind: ClassVar[int] = 2
    reason: str


@register
class Subscriptions(Frame, frozen=True):
    """All topics that the sender subscribes to now. It replaces earlier frames of the sender."""

    kind: ClassVar[int] = 3
    own_topics: ClassVar[str] = "topics"
    topics: tuple[int, ...]


@register
class Data(Frame, frozen=True):
    """A copy of a message.

    ``hops`` counts the links that it has crossed when it arrives (1 from the publisher). ``routing`` is routing
    information that the protocol adds to this copy; most protocols add none.
    """

    kind: ClassVar[int] = 16
    message_id: int
    topics: tuple[int, ...]
    hops: int
    ttl: int
    payload: bytes
    routing: bytes = b""
