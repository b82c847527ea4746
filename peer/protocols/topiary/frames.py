"""Topiary's frames."""

from typing import ClassVar

from peer.core.frames import Frame, register


@register
class Release(Frame, frozen=True):
    """The link is not one of the sender's outgoing links any more. It stays only if it is one of the receiver's."""

    kind: ClassVar[int] = 70
