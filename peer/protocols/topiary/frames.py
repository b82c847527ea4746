"""Topiary's frames."""

from typing import ClassVar

from peer.core.frames import Frame, register


@register
class Release(Frame, frozen=True):
    """The sender no longer counts the link among its outgoing ones: it stays only if the receiver does."""

    kind: ClassVar[int] = 70
