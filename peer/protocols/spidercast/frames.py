"""SpiderCast's messages. Its baselines speak them too.

``task`` says which of a node's two maintenance tasks is meant: 0 greedy, 1 random (``similar`` and ``random`` in the
similarity overlay). ``degree`` is the sender's number of neighbours in that task, ``target`` its L. ``version`` counts
the sender's changes of interest, so that an older interest never replaces a newer one.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.frames import Disclosure, Frame, register
from peer.core.identifiers import NodeId, NodeNumber, TopicNumber

TaskCode = Annotated[int, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0, lt=2**32)]


class TaskFrame(Frame, frozen=True):
    """A message from one node's task to the same task of another node."""

    task: TaskCode


class StateFrame(TaskFrame, frozen=True):
    """A message with the state of the sender's task and the sender's interest."""

    own_topics: ClassVar[str] = "interest"
    degree: Count
    target: Count
    version: Count
    interest: tuple[TopicNumber, ...]


@register
class SpiderConnect(StateFrame, frozen=True):
    """CONNECT: will you be my neighbour? Source: Figure 2, line 20."""

    kind: ClassVar[int] = 40


@register
class SpiderConnectOk(StateFrame, frozen=True):
    """CONNECT-OK: you are my neighbour. Source: Figure 4, line 33."""

    kind: ClassVar[int] = 41


@register
class SpiderRedirect(TaskFrame, frozen=True):
    """REDIRECT: I am full, ask this neighbour of mine. None: all of mine are full too. Source: Figure 4, line 9."""

    kind: ClassVar[int] = 42
    node: NodeNumber | None
    interest: tuple[TopicNumber, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return () if self.node is None else ((self.node, self.interest),)


@register
class SpiderDisconnect(TaskFrame, frozen=True):
    """DISCONNECT: may we part? Source: Figure 2, lines 26 and 30."""

    kind: ClassVar[int] = 43


@register
class SpiderDisconnectOk(TaskFrame, frozen=True):
    """DISCONNECT-OK: we have parted. Source: Figure 4, line 25."""

    kind: ClassVar[int] = 44


@register
class SpiderLeave(TaskFrame, frozen=True):
    """LEAVE: I am not your neighbour any more, whatever you need. Source: Figure 4, line 18, and section 2.4."""

    kind: ClassVar[int] = 45


@register
class SpiderHeartbeat(Frame, frozen=True):
    """HEARTBEAT: I live, and this is how I am.

    ``greedy`` and ``random`` are (degree, target) of those tasks in which the receiver is a neighbour of the sender;
    the other ones are None. ``interest`` comes for a while after it changed. Source: sections 2.3 and 2.4.
    """

    kind: ClassVar[int] = 46
    own_topics: ClassVar[str] = "interest"
    greedy: tuple[Count, Count] | None
    random: tuple[Count, Count] | None
    version: Count
    interest: tuple[TopicNumber, ...] | None
