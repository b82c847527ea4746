"""The logical links of overlays with SpiderCast's maintenance tasks, as an observer sees them."""

from peer.core.frames import Frame
from peer.core.observed_links import NO_TOPICS, SharedTopics
from peer.protocols.spidercast.frames import (
    SpiderConnect,
    SpiderConnectOk,
    SpiderDisconnectOk,
    SpiderHeartbeat,
    SpiderLeave,
    StateFrame,
    TaskCode,
    TaskFrame,
)


class NeighbourTopics(SharedTopics):
    """The topics that both ends name, as long as the other end is a neighbour in one of this end's tasks.

    CONNECT-OK makes its sender and its receiver neighbours, unless the receiver answers with LEAVE. LEAVE and
    DISCONNECT-OK end that. A heartbeat of this end names the tasks in which the other end is its neighbour.
    """

    frames = (SpiderConnect, SpiderConnectOk, SpiderDisconnectOk, SpiderLeave, SpiderHeartbeat)

    def __init__(self) -> None:
        super().__init__()
        self._tasks: frozenset[TaskCode] = frozenset()

    def take(self, frame: Frame, *, own: bool) -> None:
        if isinstance(frame, SpiderHeartbeat):
            if own:
                named = (frame.greedy, frame.random)
                self._tasks = frozenset(code for code, state in enumerate(named) if state is not None)
        elif isinstance(frame, SpiderConnectOk):
            self._tasks |= {frame.task}
        elif isinstance(frame, TaskFrame) and not isinstance(frame, StateFrame):
            self._tasks -= {frame.task}
        if isinstance(frame, (StateFrame, SpiderHeartbeat)) and frame.interest is not None:
            self._named[own] = frozenset(frame.interest)
        self.topics = self._named[True] & self._named[False] if self._tasks else NO_TOPICS
