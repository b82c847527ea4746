"""The frames of the rings."""

from typing import ClassVar

from peer.core.frames import Frame, register
from peer.core.identifiers import TopicNumber


@register
class RingLink(Frame, frozen=True):
    """On the rings of these topics, and no others, you come next after me."""

    kind: ClassVar[int] = 90
    own_topics: ClassVar[str] = "topics"
    topics: tuple[TopicNumber, ...]


@register
class RingRefusal(Frame, frozen=True):
    """I do not subscribe to these topics: somebody else comes next after you."""

    kind: ClassVar[int] = 91
    topics: tuple[TopicNumber, ...]
