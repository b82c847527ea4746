"""IDONTWANT: messages that peers already have and must not be sent.

Source: gossipsub v1.2, IDONTWANT Message.
"""

from collections import deque
from collections.abc import Sequence

from peer.core.contract import MessageId, NodeId


class Unwanted:
    """The messages that each peer lately declared not to want.

    The memory is bounded to ``messages * length * heartbeats`` message ids per peer.

    Args:
        messages: the most IDONTWANTs of a peer that are accepted between two heartbeats (``max_idontwant_messages``).
        length: the most message ids that are accepted of an IDONTWANT.
        heartbeats: the number of heartbeats for which they are remembered.
    """

    def __init__(self, messages: int, length: int, heartbeats: int) -> None:
        self._messages = messages
        self._length = length
        self._windows: deque[dict[NodeId, set[MessageId]]] = deque([{}], maxlen=heartbeats)
        self._taken: dict[NodeId, int] = {}

    def add(self, peer: NodeId, message_ids: Sequence[MessageId]) -> bool:
        """Note that a peer does not want these messages. Return whether the IDONTWANT is accepted."""
        taken = self._taken.get(peer, 0)
        if taken == self._messages:
            return False
        self._taken[peer] = taken + 1
        self._windows[0].setdefault(peer, set()).update(message_ids[: self._length])
        return True

    def holds(self, peer: NodeId, message_id: MessageId) -> bool:
        """Return whether the peer does not want the message."""
        return any(message_id in window.get(peer, ()) for window in self._windows)

    def beat(self) -> None:
        """Reset the counters and drop entries older than the limit, at a heartbeat."""
        self._taken.clear()
        self._windows.appendleft({})

    def drop_peer(self, peer: NodeId) -> None:
        self._taken.pop(peer, None)
        for window in self._windows:
            window.pop(peer, None)
