"""The frames of the rings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from peer.core.frames import Disclosure, Frame, register
from peer.core.identifiers import NodeId, TopicNumber


@register
class RingLink(Frame, frozen=True):
    """On the rings of these topics, and no others, you come next after me."""

    kind: ClassVar[int] = 90
    topics: tuple[TopicNumber, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        """See ``Frame``."""
        return ((sender, self.topics),)


@register
class RingRefusal(Frame, frozen=True):
    """I do not subscribe to these topics: somebody else comes next after you."""

    kind: ClassVar[int] = 91
    topics: tuple[TopicNumber, ...]
