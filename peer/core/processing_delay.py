"""Nodes that need time to handle the frames that they receive."""

from collections import deque

from peer.core.contract import Effect, Event, FrameReceived, LinkDown, NodeId, SetTimer, TimerFired
from peer.core.node import StatefulNode

PROCESSING = "processing/handle"


class UnhurriedNode:
    """A node that handles every frame after a fixed delay. Frames do not wait for each other.

    It handles the frames of a link in their order. When a link ends, it handles the waiting frames of that link first.

    Args:
        node: the node whose frames are delayed.
        delay_ns: the delay in ns, at least 1.
        timer: the name of its timer, which must differ from the names of the node's timers.

    Source: Topiary section II-A (the processing delay delta_v).
    """

    def __init__(self, node: StatefulNode, delay_ns: int, timer: str = PROCESSING) -> None:
        self.state = node.state
        self._node = node
        self._delay_ns = delay_ns
        self._timer = timer
        self._waiting: deque[tuple[int, FrameReceived]] = deque()

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        if isinstance(event, FrameReceived) and self.state.is_linked(event.peer):
            self._waiting.append((now_ns + self._delay_ns, event))
            return [SetTimer(self._timer, now_ns + self._delay_ns)] if len(self._waiting) == 1 else []
        if isinstance(event, TimerFired) and event.name == self._timer:
            return self._catch_up(now_ns)
        if isinstance(event, LinkDown):
            return [*self._finish(now_ns, event.peer), *self._node.handle(now_ns, event)]
        return self._node.handle(now_ns, event)

    def _catch_up(self, now_ns: int) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting and self._waiting[0][0] <= now_ns:
            effects += self._node.handle(now_ns, self._waiting.popleft()[1])
        if self._waiting:
            effects.append(SetTimer(self._timer, self._waiting[0][0]))
        return effects

    def _finish(self, now_ns: int, peer: NodeId) -> list[Effect]:
        """Handle the waiting frames of a peer now. If the timer was set for one of them, it only sets the next one."""
        effects: list[Effect] = []
        for entry in [entry for entry in self._waiting if entry[1].peer == peer]:
            self._waiting.remove(entry)
            effects += self._node.handle(now_ns, entry[1])
        return effects
