"""Flooding with a TTL that counts relays only."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from peer.core.contract import NodeId, TopicId
from peer.core.dissemination.spread import MOST_HOPS, Spreading
from peer.core.frames import UNLIMITED_TTL, Data
from peer.core.parts import State, Turn


class FloodParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Flooding with a TTL."""

    ttl: Annotated[int, Meta(ge=0, le=UNLIMITED_TTL)] = 1
    """Most relays that a copy may pass (Topiary's rule); 255 = unlimited."""
    seen_messages: Annotated[int, Meta(ge=1)] = 1 << 16
    """Number of latest messages that a node remembers. A copy that arrives after this many other messages counts as
    new."""


class Flood(Spreading):
    """Forwards every new message to all neighbours except the one that it came from.

    A relay, which subscribes to none of the message's topics, reduces the TTL by one; a subscriber does not. At TTL 0 a
    node forwards a message only to subscribers. ``UNLIMITED_TTL`` is never reduced. A message on several topics crosses
    a link once.

    Source: Topiary section II-A.
    """

    Parameters = FloodParameters
    __slots__ = ("_ttl",)

    def __init__(self, state: State, parameters: FloodParameters) -> None:
        super().__init__(state, parameters.seen_messages)
        self._ttl = parameters.ttl

    @staticmethod
    def copies_follow_links(parameters: Mapping[str, Any], *, told: bool, several: bool) -> bool:
        """Return whether every shared topic is a logical link, or only subscribers get copies."""
        ttl: object = parameters.get("ttl")
        return told or ttl == 0

    def send_own(self, turn: Turn, copy: Data) -> None:
        self._send_on(turn, None, replace(copy, ttl=self._ttl))

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        if self.take(turn, peer, copy) is not None:
            return
        self.remember(copy.message_id, copy.topics)
        ttl = copy.ttl
        if self.state.topics.isdisjoint(copy.topics) and ttl != UNLIMITED_TTL:
            ttl = max(ttl - 1, 0)
        hops = min(copy.hops + 1, MOST_HOPS)
        self._send_on(turn, peer, Data(copy.message_id, copy.topics, hops, ttl, copy.payload))

    def _send_on(self, turn: Turn, source: NodeId | None, copy: Data) -> None:
        receivers = self._receivers(copy.topics, copy.ttl)
        turn.send_each([peer for peer in receivers if peer != source], copy)

    def _receivers(self, topics: Sequence[TopicId], ttl: int) -> Iterable[NodeId]:
        neighbours = self.state.neighbours
        if ttl > 0:
            return neighbours
        if len(topics) == 1:
            [topic] = topics
            return self.state.receivers(topic)
        return [peer for peer, neighbour in neighbours.items() if not neighbour.forwards.isdisjoint(topics)]
