"""The messages that a node remembers: those that it can still send, and those that it has seen.

Source: gossipsub v1.0, Message Cache.
"""

from collections import deque
from itertools import takewhile

from peer.core.contract import MessageId, NodeId, TopicId
from peer.core.copies import Copies
from peer.core.frames import Data


class MessageCache:
    """The messages of the last heartbeats, as far as there is room, in windows of one heartbeat each.

    Args:
        windows: the number of windows that are kept (``mcache_len``).
        advertised: the number of latest windows that are advertised (``mcache_gossip``).
    """

    def __init__(self, windows: int, advertised: int) -> None:
        self._windows: deque[list[MessageId]] = deque([[] for _ in range(windows)], maxlen=windows)
        self._advertised = advertised
        self._copies: Copies[MessageId, Data] = Copies()
        self._sent: dict[MessageId, dict[NodeId, int]] = {}

    def put(self, copy: Data) -> None:
        if copy.message_id not in self._copies:
            self._copies.put(copy.message_id, copy, len(copy.payload))
            self._windows[0].append(copy.message_id)

    def get(self, message_id: MessageId) -> Data | None:
        """Return the copy; None if it is not kept."""
        return self._copies.get(message_id)

    def get_for_peer(self, message_id: MessageId, peer: NodeId, limit: int) -> Data | None:
        """Return the copy for a peer that asks.

        Args:
            message_id: the message.
            peer: the peer.
            limit: how often the peer may get the message.

        Returns:
            None if the message is not kept, or the peer got it ``limit`` times.
        """
        copy = self._copies.get(message_id)
        if copy is None:
            return None
        sent = self._sent.setdefault(message_id, {})
        if sent.get(peer, 0) >= limit:
            return None
        sent[peer] = sent.get(peer, 0) + 1
        return copy

    def advertisable(self) -> dict[TopicId, list[MessageId]]:
        """Return the messages to advertise, by topic, the latest window first."""
        found: dict[TopicId, list[MessageId]] = {}
        for window in list(self._windows)[: self._advertised]:
            for message_id in window:
                copy = self._copies.get(message_id)
                for topic in () if copy is None else copy.topics:
                    found.setdefault(topic, []).append(message_id)
        return found

    def shift(self) -> None:
        """Begin a new window and forget the oldest one."""
        for message_id in self._windows[-1]:
            self._copies.forget(message_id)
            self._sent.pop(message_id, None)
        self._windows.appendleft([])


class SeenCache:
    """The messages whose first copy arrived within the last ``ttl_ns``, with the instant of the arrival."""

    def __init__(self, ttl_ns: int) -> None:
        self._ttl_ns = ttl_ns
        self._first_ns: dict[MessageId, int] = {}

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self._first_ns

    def add(self, now_ns: int, message_id: MessageId) -> None:
        self._first_ns[message_id] = now_ns

    def first_ns(self, message_id: MessageId) -> int:
        """Return the instant at which the first copy of a seen message arrived (ns)."""
        return self._first_ns[message_id]

    def expire(self, now_ns: int) -> None:
        old = takewhile(lambda seen: now_ns - seen[1] > self._ttl_ns, self._first_ns.items())
        for identifier, _ in list(old):
            del self._first_ns[identifier]
