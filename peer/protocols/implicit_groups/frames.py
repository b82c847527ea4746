"""The frames of implicit group messaging, besides the copies of messages (``Data``)."""

from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.frames import Frame, register

Natural = Annotated[int, Meta(ge=0)]
Extents = tuple[bytes, ...]
Entries = tuple[tuple[Natural, Extents], ...]
"""(node, the extents that it manages)."""


class Routed(Frame, frozen=True):
    """A node's request to the manager of some place on the surface; nodes route it there.

    ``visited``: the nodes passed since one from which no neighbour was nearer to the goal.
    """

    node: Natural
    goal: bytes
    hops: Natural
    visited: tuple[Natural, ...]


@register
class GroupJoin(Routed, frozen=True):
    """JOIN: a node asks the manager of its address for an extent. ``goal``: the address."""

    kind: ClassVar[int] = 120


@register
class GroupWelcome(Frame, frozen=True):
    """The answer to a JOIN, or what a leaving node hands over: the receiver manages these extents from now on.

    ``entries``: the managers of extents that are adjacent to them, the sender among them. ``cohabitants``: the nodes at
    the receiver's own address; if ``extents`` is empty, the first of them manages it.
    """

    kind: ClassVar[int] = 121
    extents: Extents
    entries: Entries
    cohabitants: tuple[Natural, ...]


@register
class GroupUpdate(Frame, frozen=True):
    """All extents that the sender manages; it replaces what it said before.

    ``entries``: neighbours of the sender that are the receiver's neighbours, too, as far as the sender knows.
    """

    kind: ClassVar[int] = 122
    extents: Extents
    entries: Entries


@register
class GroupLeave(Frame, frozen=True):
    """The sender leaves. ``entries``: who manages its extents now."""

    kind: ClassVar[int] = 123
    entries: Entries


@register
class GroupRefusal(Frame, frozen=True):
    """The sender is no member and cannot pass the JOIN of ``node`` on. Or it is ``node``, and refuses a Welcome."""

    kind: ClassVar[int] = 124
    node: Natural


@register
class GroupFind(Routed, frozen=True):
    """A node asks who manages an extent next to its own: ``goal``. The manager opens a link to it (ours)."""

    kind: ClassVar[int] = 125


@register
class GroupAlive(Frame, frozen=True):
    """The sender is up (ours)."""

    kind: ClassVar[int] = 126


@register
class GroupAsk(Frame, frozen=True):
    """A node that has just joined asks for copies of the latest messages for its address; sent by CAST.

    ``number`` tells the node's requests apart. ``answered``: the messages of which nodes passed on this way have sent a
    copy.
    """

    kind: ClassVar[int] = 127
    node: Natural
    number: Natural
    address: bytes
    answered: tuple[Natural, ...]
    routing: bytes = b""


@register
class GroupShortcut(Routed, frozen=True):
    """A node sends this to itself by way of another one, to get to know nodes on the way (ours).

    ``goal``: the extent of its address. ``passed``: some of the nodes that have routed it.
    """

    kind: ClassVar[int] = 128
    passed: tuple[Natural, ...]


@register
class GroupPing(Frame, frozen=True):
    """A node measures the round-trip time to a landmark, or this is the answer (ours)."""

    kind: ClassVar[int] = 129
    is_answer: bool
