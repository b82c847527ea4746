"""The frames of implicit group messaging, besides the copies of messages (``Data``)."""

from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.frames import Frame, register

Natural = Annotated[int, Meta(ge=0)]
Extents = tuple[bytes, ...]
Entries = tuple[tuple[Natural, Extents], ...]
"""Pairs of a node and the extents that it manages."""


class Routed(Frame, frozen=True):
    """A node's request to the manager of a place on the surface, to which nodes route it.

    ``visited``: the nodes that it has passed since a node without a neighbour nearer to the goal.
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
    """The answer to a JOIN, or a leaving node's hand-over: the receiver manages these extents from now on.

    ``entries``: the managers of adjacent extents, including the sender. ``cohabitants``: the nodes at the receiver's
    own address; if ``extents`` is empty, the first of them manages it.
    """

    kind: ClassVar[int] = 121
    extents: Extents
    entries: Entries
    cohabitants: tuple[Natural, ...]


@register
class GroupUpdate(Frame, frozen=True):
    """All extents that the sender manages. It replaces earlier frames of the sender.

    ``entries``: neighbours of the sender that are the receiver's neighbours, too, as far as the sender knows.
    """

    kind: ClassVar[int] = 122
    extents: Extents
    entries: Entries


@register
class GroupLeave(Frame, frozen=True):
    """The sender leaves. ``entries``: the new managers of its extents."""

    kind: ClassVar[int] = 123
    entries: Entries


@register
class GroupRefusal(Frame, frozen=True):
    """The sender is not a member and cannot forward the JOIN of ``node``. Or it is ``node``, and refuses a Welcome."""

    kind: ClassVar[int] = 124
    node: Natural


@register
class GroupFind(Routed, frozen=True):
    """A node looks for the manager of an extent next to its own: ``goal``. The manager opens a link to it (ours)."""

    kind: ClassVar[int] = 125


@register
class GroupAlive(Frame, frozen=True):
    """The sender is up (ours)."""

    kind: ClassVar[int] = 126


@register
class GroupAsk(Frame, frozen=True):
    """A node that has just joined asks for copies of the latest messages for its address. It is sent by CAST.

    ``number`` distinguishes the node's requests. ``answered``: the messages of which nodes on this way have sent a
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
    """A node sends this to itself through another node, to learn nodes on the way (ours).

    ``goal``: the extent of its address. ``passed``: some of the nodes that have routed it.
    """

    kind: ClassVar[int] = 128
    passed: tuple[Natural, ...]


@register
class GroupPing(Frame, frozen=True):
    """A node measures the round-trip time to a landmark; ``is_answer``: this is the landmark's answer (ours)."""

    kind: ClassVar[int] = 129
    is_answer: bool
