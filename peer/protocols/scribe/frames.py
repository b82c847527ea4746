"""Scribe's frames. Most can be about several groups, so that one frame is sent per link and instant."""

from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.frames import Frame, register

Natural = Annotated[int, Meta(ge=0)]
Groups = tuple[Natural, ...]


@register
class ScribeJoin(Frame, frozen=True):
    """JOIN: a request to be the sender's parent in these groups."""

    kind: ClassVar[int] = 80
    groups: Groups


@register
class ScribeLeave(Frame, frozen=True):
    """LEAVE: the receiver stops being the sender's parent in these groups."""

    kind: ClassVar[int] = 81
    groups: Groups


@register
class ScribeRedirect(Frame, frozen=True):
    """The sender refuses or stops being the receiver's parent in a group; its children (``nodes``) may be asked."""

    kind: ClassVar[int] = 82
    group: Natural
    nodes: tuple[Natural, ...]


@register
class ScribeHeartbeat(Frame, frozen=True):
    """A heartbeat of the roots of these groups, in which the sender is the receiver's parent.

    ``depth`` is the number of links from the root to the receiver.
    """

    kind: ClassVar[int] = 83
    groups: Groups
    depth: Natural
