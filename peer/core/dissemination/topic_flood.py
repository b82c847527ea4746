"""Flooding along topic-induced links: a message goes only to neighbours that want it, under the topics they want."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from peer.core.contract import Message, MessageId, NodeId, Publish, TopicId
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.node import Part, State, Turn


class TopicFloodParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Flooding along each topic's links."""

    seen_messages: Annotated[int, Meta(ge=1)] = 1 << 16
    """How many of the latest messages a node remembers. A copy that is still under way after so many others would be
    taken for new."""


class TopicFlood(Part):
    """Sends a message on along the links of its topics, once for each link and topic.

    A copy carries those of the message's topics that its receiver is known to subscribe to (``Neighbour.topics``), so
    it tells nobody of a topic that they do not share, and a message on several topics crosses a link once. Where a
    later copy brings a topic that the node has not yet passed on, it goes on under that topic alone.

    Source: our choice for overlays whose papers leave dissemination open (SpiderCast, StAN section 2).
    """

    Parameters = TopicFloodParameters
    frames = (Data,)

    def __init__(self, state: State, parameters: TopicFloodParameters) -> None:
        super().__init__(state)
        self._seen: dict[MessageId, tuple[TopicId, ...]] = {}
        self._seen_messages = parameters.seen_messages

    def publish(self, turn: Turn, publication: Publish) -> None:
        """Send a message of this node's own; deliver it here too where this node subscribes."""
        identifier, topics, payload = publication.message_id, publication.topics, publication.payload
        turn.trace("publish", message_id=identifier, topics=topics, len_bytes=len(payload))
        if self._seen.get(identifier) is None:
            self._remember(identifier, topics)
            if not self.state.topics.isdisjoint(topics):
                turn.deliver(Message(identifier, topics, payload, 0))
                turn.trace("deliver", message_id=identifier, topics=topics, hops=0)
            self._send_on(turn, None, topics, Data(identifier, topics, 1, UNLIMITED_TTL, payload))

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Deliver the first copy, and send on what is new in any."""
        assert isinstance(frame, Data)
        noted = {"message_id": frame.message_id, "topics": frame.topics, "peer": peer, "hops": frame.hops}
        before = self._seen.get(frame.message_id)
        if before is not None:
            turn.trace("duplicate", **noted)
        elif self.state.topics.isdisjoint(frame.topics):
            turn.trace("relay", **noted)
        else:
            turn.deliver(Message(frame.message_id, frame.topics, frame.payload, frame.hops))
            turn.trace("deliver", **noted)
        fresh = frame.topics if before is None else tuple(topic for topic in frame.topics if topic not in before)
        if fresh:
            self._remember(frame.message_id, (*(before or ()), *fresh))
            self._send_on(turn, peer, fresh, frame)

    def _send_on(self, turn: Turn, source: NodeId | None, topics: tuple[TopicId, ...], copy: Data) -> None:
        # A header's hop count has eight bits: a message that has come so far stays at the highest.
        hops = 1 if source is None else min(copy.hops + 1, 255)
        last: Data | None = None
        for peer, neighbour in self.state.neighbours.items():
            carried = tuple(topic for topic in topics if topic in neighbour.topics)
            if not carried or peer == source:
                continue
            if last is None or last.topics != carried:  # equal copies are one value, which is encoded once
                last = Data(copy.message_id, carried, hops, UNLIMITED_TTL, copy.payload)
            turn.send(peer, last)

    def _remember(self, identifier: MessageId, topics: tuple[TopicId, ...]) -> None:
        self._seen[identifier] = topics
        if len(self._seen) > self._seen_messages:
            del self._seen[next(iter(self._seen))]
