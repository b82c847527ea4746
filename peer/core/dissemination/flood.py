"""Flooding with a TTL that counts uninterested nodes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from peer.core.contract import Message, MessageId, NodeId, Publish, TopicId
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.node import Part, State, Turn


class FloodParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Flooding with a TTL."""

    ttl: Annotated[int, Meta(ge=0, le=UNLIMITED_TTL)] = 1
    """Links to uninterested nodes that a copy may cross in a row of decrements (Topiary's rule); 255 = unlimited."""
    seen_messages: Annotated[int, Meta(ge=1)] = 1 << 16
    """How many of the latest messages a node remembers. A copy that is still under way after so many others would be
    taken for new."""


class Flood(Part):
    """Sends every new message on, to all neighbours but the one it came from.

    A node without interest in any of the message's topics takes one off the TTL; a node with interest leaves it as it
    is. At TTL 0 a message goes only to neighbours with an interest in it. ``UNLIMITED_TTL`` is never reduced. A message
    on several topics crosses a link once.

    Source: Topiary section II-A.
    """

    Parameters = FloodParameters
    frames = (Data,)

    def __init__(self, state: State, parameters: FloodParameters) -> None:
        super().__init__(state)
        self._ttl = parameters.ttl
        self._seen: dict[MessageId, None] = {}
        self._seen_messages = parameters.seen_messages

    def publish(self, turn: Turn, publication: Publish) -> None:
        """Send a message of this node's own to its neighbours; deliver it here too where this node subscribes."""
        identifier, topics, payload = publication.message_id, publication.topics, publication.payload
        turn.trace("publish", message_id=identifier, topics=topics, len_bytes=len(payload))
        if self._is_new(identifier):
            if not self.state.topics.isdisjoint(topics):
                turn.deliver(Message(identifier, topics, payload, 0))
                turn.trace("deliver", message_id=identifier, topics=topics, hops=0)
            self._send_on(turn, None, Data(identifier, topics, 1, self._ttl, payload))

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Deliver the first copy or note it as relayed, and send it on."""
        assert isinstance(frame, Data)
        seen = {"message_id": frame.message_id, "topics": frame.topics, "peer": peer, "hops": frame.hops}
        if not self._is_new(frame.message_id):
            turn.trace("duplicate", **seen)
            return
        ttl = frame.ttl
        if not self.state.topics.isdisjoint(frame.topics):
            turn.deliver(Message(frame.message_id, frame.topics, frame.payload, frame.hops))
            turn.trace("deliver", **seen)
        else:
            turn.trace("relay", **seen)
            ttl = ttl if ttl == UNLIMITED_TTL else max(ttl - 1, 0)
        # A header's hop count has eight bits: a message that has come so far stays at the highest.
        self._send_on(turn, peer, Data(frame.message_id, frame.topics, min(frame.hops + 1, 255), ttl, frame.payload))

    def _send_on(self, turn: Turn, source: NodeId | None, copy: Data) -> None:
        for peer in self._receivers(copy.topics, copy.ttl):
            if peer != source:
                turn.send(peer, copy)

    def _receivers(self, topics: Sequence[TopicId], ttl: int) -> list[NodeId]:
        neighbours = self.state.neighbours
        if ttl > 0:
            return list(neighbours)
        return [peer for peer, neighbour in neighbours.items() if not neighbour.topics.isdisjoint(topics)]

    def _is_new(self, identifier: MessageId) -> bool:
        if identifier in self._seen:
            return False
        self._seen[identifier] = None
        if len(self._seen) > self._seen_messages:
            del self._seen[next(iter(self._seen))]
        return True
