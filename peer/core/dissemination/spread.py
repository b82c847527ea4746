"""The common part of disseminations that flood: a node delivers every message once and traces every copy."""

from collections import deque
from typing import ClassVar

from peer.core.contract import Message, MessageId, NodeId, Publish, TopicId, publisher_of
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.parts import Part, State, Turn

MOST_HOPS = 255
"""The highest hop count, since a header has eight bits for it. Further hops are not counted."""


class Spreading(Part):
    """Remembers the latest messages and delivers first copies. Subclasses choose the receivers of the next copies.

    Attributes:
        seen: the latest messages, each with the topics under which the node has seen it.

    Args:
        state: the node's state.
        seen_messages: the number of latest messages to remember.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = (Data,)
    __slots__ = ("_order", "_seen_messages", "seen")

    def __init__(self, state: State, seen_messages: int) -> None:
        super().__init__(state)
        self.seen: dict[MessageId, tuple[TopicId, ...]] = {}
        self._order: deque[MessageId] = deque()  # finding a dict's oldest key passes the places of all deleted keys
        self._seen_messages = seen_messages

    def publish(self, turn: Turn, publication: Publish) -> None:
        """Deliver this node's own message if it subscribes to one of its topics, and send it to other nodes."""
        identifier, topics, payload = publication.message_id, publication.topics, publication.payload
        turn.trace("publish", message_id=identifier, topics=topics, len_bytes=len(payload))
        if identifier in self.seen:
            return
        self.remember(identifier, topics)
        if not self.state.topics.isdisjoint(topics):
            turn.deliver(Message(identifier, topics, payload, 0))
            turn.trace("deliver", message_id=identifier, topics=topics, hops=0)
        self.send_own(turn, Data(identifier, topics, 1, UNLIMITED_TTL, payload))

    def send_own(self, turn: Turn, copy: Data) -> None:
        """Send a message that this node published."""
        raise NotImplementedError

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Take a copy. Refuse it if it claims to be this node's own message, but this node has not published it.

        Such a copy is forged, or an earlier instance published it. Ids are predictable: if the node took the copy, it
        would later not publish its own message with that id.
        """
        assert isinstance(frame, Data)
        if frame.message_id not in self.seen and publisher_of(frame.message_id) == self.state.node:
            turn.trace("reject", peer=peer, message_id=frame.message_id, topics=frame.topics, reason="own_message")
        else:
            self.receive_copy(turn, peer, frame)

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        """Deliver the copy if it is due, and send it to other nodes.

        Args:
            turn: the present turn.
            peer: the neighbour that sent it.
            copy: the copy.
        """
        raise NotImplementedError

    def take(self, turn: Turn, peer: NodeId, copy: Data) -> tuple[TopicId, ...] | None:
        """Deliver a first copy, or trace it as relayed. Trace any other copy as a duplicate.

        Args:
            turn: the present turn.
            peer: the neighbour that sent it.
            copy: the copy.

        Returns:
            The topics remembered with the message; None if it is new.
        """
        before = self.seen.get(copy.message_id)
        if before is not None:
            turn.trace_copy("duplicate", peer, copy)
        elif self.state.topics.isdisjoint(copy.topics):
            turn.trace_copy("relay", peer, copy)
        else:
            turn.deliver(Message(copy.message_id, copy.topics, copy.payload, copy.hops))
            turn.trace_copy("deliver", peer, copy)
        return before

    def remember(self, identifier: MessageId, topics: tuple[TopicId, ...]) -> None:
        """Remember a message, with all topics under which the node has seen it."""
        seen = self.seen
        known = len(seen)
        seen[identifier] = topics
        if len(seen) > known:
            self._order.append(identifier)
            if known == self._seen_messages:
                del seen[self._order.popleft()]
