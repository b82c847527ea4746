"""The frames of the rings."""

from typing import ClassVar

from peer.core.frames import Frame, register
from peer.core.identifiers import TopicNumber


@register
class RingLink(Frame, frozen=True):
    """The receiver is the sender's successor in the rings of these topics, and of no others."""

    kind: ClassVar[int] = 90
    own_topics: ClassVar[str] = "topics"
    topics: tuple[TopicNumber, ...]


@register
class RingRefusal(Frame, frozen=True):
    """The sender does not subscribe to these topics, so another node must be the receiver's successor."""

    kind: ClassVar[int] = 91
    topics: tuple[TopicNumber, ...]
