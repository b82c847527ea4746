"""Scribe's frames. What concerns several groups on a link travels in one frame where it happens at one instant."""

from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.frames import Frame, register

Natural = Annotated[int, Meta(ge=0)]
Groups = tuple[Natural, ...]


@register
class ScribeJoin(Frame, frozen=True):
    """JOIN: the receiver is to be the sender's parent in these groups."""

    kind: ClassVar[int] = 80
    groups: Groups


@register
class ScribeLeave(Frame, frozen=True):
    """LEAVE: the receiver is no longer the sender's parent in these groups."""

    kind: ClassVar[int] = 81
    groups: Groups


@register
class ScribeRedirect(Frame, frozen=True):
    """The sender is not, or no longer, the receiver's parent in a group; one of its children (``nodes``) may be."""

    kind: ClassVar[int] = 82
    group: Natural
    nodes: tuple[Natural, ...]


@register
class ScribeHeartbeat(Frame, frozen=True):
    """The sender is the receiver's parent in these groups, whose root has just been heard from.

    ``depth`` counts the links from the root to the receiver.
    """

    kind: ClassVar[int] = 83
    groups: Groups
    depth: Natural
