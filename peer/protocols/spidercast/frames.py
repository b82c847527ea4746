"""The frames of SpiderCast. Its baselines use them, too.

``task`` is the maintenance task of the node: 0 greedy, 1 random (``similar`` and ``random`` in the similarity overlay).
``degree`` is the sender's number of neighbours in that task, ``target`` its L. ``version`` counts the sender's changes
of interest, so that an older interest never replaces a newer one.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.frames import Disclosure, Frame, register
from peer.core.identifiers import NodeId, NodeNumber, TopicNumber

TaskCode = Annotated[int, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, lt=2**32)]


class TaskFrame(Frame, frozen=True):
    """A frame from a task of one node to the same task of another node."""

    task: TaskCode


class StateFrame(TaskFrame, frozen=True):
    """A frame with the state of the sender's task and the sender's interest."""

    own_topics: ClassVar[str] = "interest"
    degree: Count
    target: Count
    version: Count
    interest: tuple[TopicNumber, ...]


@register
class SpiderConnect(StateFrame, frozen=True):
    """CONNECT: a request to become a neighbour. Source: Figure 2, line 20."""

    kind: ClassVar[int] = 40


@register
class SpiderConnectOk(StateFrame, frozen=True):
    """CONNECT-OK: the receiver is the sender's neighbour. Source: Figure 4, line 33."""

    kind: ClassVar[int] = 41


@register
class SpiderRedirect(TaskFrame, frozen=True):
    """REDIRECT: the sender is full and names a neighbour to ask. None: all are full, too. Source: Figure 4, line 9."""

    kind: ClassVar[int] = 42
    node: NodeNumber | None
    interest: tuple[TopicNumber, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return () if self.node is None else ((self.node, self.interest),)


@register
class SpiderDisconnect(TaskFrame, frozen=True):
    """DISCONNECT: a request to disconnect. Source: Figure 2, lines 26 and 30."""

    kind: ClassVar[int] = 43


@register
class SpiderDisconnectOk(TaskFrame, frozen=True):
    """DISCONNECT-OK: the receiver is not the sender's neighbour any more. Source: Figure 4, line 25."""

    kind: ClassVar[int] = 44


@register
class SpiderLeave(TaskFrame, frozen=True):
    """LEAVE: the sender stops being a neighbour, without a request. Source: Figure 4, line 18, and section 2.4."""

    kind: ClassVar[int] = 45


@register
class SpiderHeartbeat(Frame, frozen=True):
    """HEARTBEAT: the sender is up, and the state of its tasks.

    ``greedy`` and ``random`` are (degree, target) of the tasks in which the receiver is a neighbour of the sender, and
    None for other tasks. ``interest`` is present only for some time after a change. Source: sections 2.3 and 2.4.
    """

    kind: ClassVar[int] = 46
    own_topics: ClassVar[str] = "interest"
    greedy: tuple[Count, Count] | None
    random: tuple[Count, Count] | None
    version: Count
    interest: tuple[TopicNumber, ...] | None
