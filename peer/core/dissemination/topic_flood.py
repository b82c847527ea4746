"""Flooding along topic-induced links: a node forwards a message only on the links of its topics."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from peer.core.contract import NodeId, TopicId
from peer.core.dissemination.spread import MOST_HOPS, Spreading
from peer.core.frames import UNLIMITED_TTL, Data
from peer.core.parts import State, Turn


class TopicFloodParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Flooding along each topic's links."""

    whole: bool = False
    """Copies have all topics of their message, and a node forwards each message once. Otherwise copies have only the
    topics of their link, which discloses no topic that the two nodes do not share, and a message on several topics may
    arrive once per topic."""
    seen_messages: Annotated[int, Meta(ge=1)] = 1 << 16
    """Number of latest messages that a node remembers. A copy that arrives after this many other messages counts as
    new."""


class TopicFlood(Spreading):
    """Forwards a message along the links of its topics.

    ``Neighbour.forwards`` has the topics that a node forwards to a neighbour. With ``whole``, a node forwards only the
    first copy of a message, along the links of any of its topics, even if the node takes part in only some of them. So
    a message on several topics crosses a link at most once in each direction. Without ``whole``, a copy has only the
    topics that its link carries, and the publisher sends one copy over each link. If a later copy has a topic of the
    node's own that the node has not forwarded yet, the node forwards the message under that topic alone. For the
    application, the message is not new then.

    A node first removes the topics on which the sender may not send (``State.admits``) from a copy. It refuses a copy
    without any other topic. With a message it remembers at most its own topics and those of its own publication.

    Attributes:
        whole: the parameter of this name in ``TopicFloodParameters``.

    Source: our choice for overlays whose papers leave dissemination open (SpiderCast, StAN section 2).
    """

    Parameters = TopicFloodParameters
    __slots__ = ("whole",)

    def __init__(self, state: State, parameters: TopicFloodParameters) -> None:
        super().__init__(state, parameters.seen_messages)
        self.whole = parameters.whole

    @staticmethod
    def copies_follow_links(parameters: Mapping[str, Any], *, told: bool, several: bool) -> bool:
        """Return whether copies never have more topics than their link carries."""
        return not (several and parameters.get("whole"))

    def send_own(self, turn: Turn, copy: Data) -> None:
        self._send_on(turn, None, copy.topics, copy, copy.hops)

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        admitted = tuple(topic for topic in copy.topics if self.state.admits(peer, topic))
        if not admitted:
            turn.trace("reject", peer=peer, message_id=copy.message_id, topics=copy.topics, reason="stranger")
            return
        if admitted != copy.topics:
            copy = replace(copy, topics=admitted)
        before = self.take(turn, peer, copy)
        own = tuple(topic for topic in dict.fromkeys(admitted) if topic in self.state.topics)
        if self.whole:
            fresh, kept = (admitted, own) if before is None else ((), ())
        else:
            fresh = kept = tuple(topic for topic in own if topic not in (before or ()))
        if before is None or kept:
            self.remember(copy.message_id, (*(before or ()), *kept))
        if fresh:
            self._send_on(turn, peer, fresh, copy, min(copy.hops + 1, MOST_HOPS))

    def _send_on(self, turn: Turn, source: NodeId | None, topics: tuple[TopicId, ...], copy: Data, hops: int) -> None:
        last: Data | None = None
        for peer, neighbour in self.state.neighbours.items():
            if peer == source or neighbour.forwards.isdisjoint(topics):
                continue
            carried = topics if self.whole else tuple(topic for topic in topics if topic in neighbour.forwards)
            if last is None or last.topics != carried:  # equal copies are one object, which is encoded once
                last = Data(copy.message_id, carried, hops, UNLIMITED_TTL, copy.payload)
            turn.send(peer, last)
