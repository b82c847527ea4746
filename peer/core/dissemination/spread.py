"""What all disseminations that flood have in common: every message is delivered once, and every copy is traced."""

from collections import deque
from typing import ClassVar

from peer.core.contract import Message, MessageId, NodeId, Publish, TopicId, publisher_of
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.parts import Part, State, Turn

MOST_HOPS = 255
"""A header's hop count has eight bits: a message that has come so far stays at the highest."""


class Spreading(Part):
    """Remembers which messages it has seen and delivers first copies; subclasses say who gets the next copies.

    Attributes:
        seen: the latest messages, each with the topics under which it was seen.

    Args:
        state: the node's.
        seen_messages: how many of the latest messages are remembered.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = (Data,)
    __slots__ = ("_order", "_seen_messages", "seen")

    def __init__(self, state: State, seen_messages: int) -> None:
        super().__init__(state)
        self.seen: dict[MessageId, tuple[TopicId, ...]] = {}
        self._order: deque[MessageId] = deque()  # a dict's oldest key is behind the places of all that were deleted
        self._seen_messages = seen_messages

    def publish(self, turn: Turn, publication: Publish) -> None:
        """Deliver a message of this node's own where this node subscribes, and send it to others."""
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
        """Send a message that begins here."""
        raise NotImplementedError

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Take a copy. One of this node's own message that it has not published is forged, or an earlier instance's.

        Ids are predictable. If the copy were taken, the node would later not publish its own message of that id.
        """
        assert isinstance(frame, Data)
        if frame.message_id not in self.seen and publisher_of(frame.message_id) == self.state.node:
            turn.trace("reject", peer=peer, message_id=frame.message_id, topics=frame.topics, reason="own_message")
        else:
            self.receive_copy(turn, peer, frame)

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        """Deliver the copy or not, and send it to others."""
        raise NotImplementedError

    def take(self, turn: Turn, peer: NodeId, copy: Data) -> tuple[TopicId, ...] | None:
        """Deliver a first copy, or note it as relayed; note any other as a duplicate.

        Returns:
            The topics remembered with the message; None where it is new.
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
        """A message was seen, under these topics in all."""
        seen = self.seen
        known = len(seen)
        seen[identifier] = topics
        if len(seen) > known:
            self._order.append(identifier)
            if known == self._seen_messages:
                del seen[self._order.popleft()]
