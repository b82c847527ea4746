"""Notify and pull: a node notifies its neighbours of a message. Each of them asks one of its notifiers for the copy."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from peer.core.contract import MessageId, NodeId, TopicId, publisher_of
from peer.core.copies import Copies
from peer.core.dissemination.spread import MOST_HOPS, Spreading
from peer.core.frames import UNLIMITED_TTL, Data, Frame, register
from peer.core.identifiers import TopicNumber
from peer.core.parts import State, Turn

PULL, CATCH_UP = "dissemination/pull", "dissemination/catch_up"
PATIENCE_NS = 2_000_000_000
"""How long a node waits for a message that it asked for before it asks another neighbour (ns)."""

CATCH_UP_NS = 1_000_000_000
"""How often a node looks for new receivers of recent messages (ns)."""

MOST_PENDING = 4096
"""Most messages that a node has asked for and not received."""

MOST_PENDING_FROM_ONE = 1024
"""Most of them from one neighbour, so that a neighbour that invents messages does not keep out those of others."""

MOST_SOURCES = 8
"""Most neighbours per message that a node remembers as having it."""

MOST_TOPICS = 255
"""Most topics of a message."""

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


@register
class Notify(Frame, frozen=True):
    """The sender has a message. ``hops``: the links that the message will have crossed when the receiver has it."""

    kind: ClassVar[int] = 17
    message_id: Number
    topics: tuple[TopicNumber, ...]
    hops: Annotated[int, Meta(ge=1, le=MOST_HOPS)]


@register
class Pull(Frame, frozen=True):
    """The sender asks the receiver for the message."""

    kind: ClassVar[int] = 18
    message_id: Number


class NotifyPullParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Notifications and pulls along the links that the overlay chose."""

    spreading: Literal["pull", "push"] = "pull"
    """``pull``: neighbours are notified and ask for the message; ``push``: they get the message at once."""
    seen_messages: Annotated[int, Meta(ge=1)] = 1 << 16
    """Number of latest messages that a node remembers."""
    stored_messages: Annotated[int, Meta(ge=1)] = 1024
    """Number of latest messages that a node keeps for neighbours that ask for them, of at most 64 MiB."""
    catch_up_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Age up to which a message is also passed on to neighbours that become its receivers later, such as new members of
    a cluster. Once per second, they are notified of it, or sent it. 0 = never, as in the paper."""


class Pending:
    """A message that a node has asked for: the neighbour that it asked, when, and other neighbours that have it."""

    __slots__ = ("asked_ns", "source", "sources")

    def __init__(self, source: NodeId, asked_ns: int) -> None:
        self.source = source
        self.asked_ns = asked_ns
        self.sources: list[NodeId] = []


class Recent:
    """A message that a node forwards to new receivers until an instant, and the neighbours that have or know it."""

    __slots__ = ("copy", "told", "until_ns")

    def __init__(self, copy: Data, until_ns: int, told: set[NodeId]) -> None:
        self.copy = copy
        self.until_ns = until_ns
        self.told = told


class NotifyPull(Spreading):
    """Forwards each new message to the neighbours to which the overlay forwards its topics.

    With ``pull``, a node notifies these neighbours once it has the message. A neighbour that lacks it asks the first
    node that notified it, and the next one if that one does not answer in time or its link ends. So each node receives
    each message once. With ``push``, the neighbours get copies at once.

    Joins, and replacements of gateways and paths, may divide the subscribers of a topic for a few rounds. With
    ``catch_up_s`` (ours), a message reaches the other part once the two are connected again.

    Source: Vitis section III-C.
    """

    Parameters = NotifyPullParameters
    frames = (Data, Notify, Pull)
    __slots__ = ("_asked", "_catch_up_ns", "_pending", "_pulls", "_recent", "_stored")

    def __init__(self, state: State, parameters: NotifyPullParameters) -> None:
        super().__init__(state, parameters.seen_messages)
        self._pulls = parameters.spreading == "pull"
        self._catch_up_ns = round(parameters.catch_up_s * 1e9)
        self._recent: Copies[MessageId, Recent] = Copies(parameters.stored_messages)
        self._stored: Copies[MessageId, Data] = Copies(parameters.stored_messages)
        self._pending: dict[MessageId, Pending] = {}
        self._asked: Counter[NodeId] = Counter()

    @staticmethod
    def copies_may_wait(parameters: Mapping[str, Any]) -> bool:
        """Return whether the first copy waits for a request."""
        return bool(parameters.get("spreading", "pull") == "pull")

    def send_own(self, turn: Turn, copy: Data) -> None:
        self._pass_on(turn, None, copy)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, Notify):
            self._take_notification(turn, peer, frame)
        elif isinstance(frame, Pull):
            self._answer(turn, peer, frame)
        else:
            super().receive(turn, peer, frame)

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        self._forget(copy.message_id)
        if self.take(turn, peer, copy) is None:
            self.remember(copy.message_id, copy.topics)
            hops = min(copy.hops + 1, MOST_HOPS)
            self._pass_on(turn, peer, Data(copy.message_id, copy.topics, hops, UNLIMITED_TTL, copy.payload))
        else:
            self._note_told(peer, copy.message_id)

    def _pass_on(self, turn: Turn, source: NodeId | None, copy: Data) -> None:
        """Forward a message to all its receivers except its source."""
        receivers = [peer for peer in self._receivers(copy.topics) if peer != source]
        if self._pulls:
            self._stored.put(copy.message_id, copy, len(copy.payload))
        self._tell(turn, receivers, copy)
        if self._catch_up_ns:
            if not self._recent:
                turn.set_timer(CATCH_UP, turn.now_ns + CATCH_UP_NS)
            told = {*receivers} if source is None else {*receivers, source}
            recent = Recent(copy, turn.now_ns + self._catch_up_ns, told)
            self._recent.put(copy.message_id, recent, len(copy.payload))

    def _tell(self, turn: Turn, receivers: list[NodeId], copy: Data) -> None:
        """Send a copy, or a notification of it."""
        turn.send_each(receivers, Notify(copy.message_id, copy.topics, copy.hops) if self._pulls else copy)

    def _receivers(self, topics: tuple[TopicId, ...]) -> tuple[NodeId, ...]:
        if len(topics) == 1:
            return self.state.receivers(topics[0])
        return tuple(dict.fromkeys(peer for topic in topics for peer in self.state.receivers(topic)))

    # ------------------------------------------------------------------------------------------------------ pulls

    def _take_notification(self, turn: Turn, peer: NodeId, frame: Notify) -> None:
        identifier = frame.message_id
        if identifier in self.seen:
            self._note_told(peer, identifier)
            return
        pending = self._pending.get(identifier)
        if pending is not None:
            if len(pending.sources) < MOST_SOURCES and peer not in pending.sources:
                pending.sources.append(peer)
        elif publisher_of(identifier) == self.state.node:
            turn.trace("reject", peer=peer, message_id=identifier, kind=frame.kind, reason="own_message")
        elif (
            len(self._pending) >= MOST_PENDING
            or self._asked[peer] >= MOST_PENDING_FROM_ONE
            or len(frame.topics) > MOST_TOPICS
        ):
            turn.trace("reject", peer=peer, message_id=identifier, kind=frame.kind, reason="too_much_pending")
        else:
            if not self._pending:
                turn.set_timer(PULL, turn.now_ns + PATIENCE_NS)
            self._pending[identifier] = Pending(peer, turn.now_ns)
            self._asked[peer] += 1
            turn.send(peer, Pull(identifier))

    def _forget(self, identifier: MessageId) -> Pending | None:
        """Stop waiting for a message."""
        pending = self._pending.pop(identifier, None)
        if pending is not None:
            self._asked[pending.source] -= 1
            if not self._asked[pending.source]:
                del self._asked[pending.source]
        return pending

    def _answer(self, turn: Turn, peer: NodeId, frame: Pull) -> None:
        copy = self._stored.get(frame.message_id)
        if copy is None:
            turn.trace("reject", peer=peer, message_id=frame.message_id, kind=frame.kind, reason="unknown_message")
        else:
            turn.send(peer, copy)

    def fire(self, turn: Turn, name: str) -> None:
        if name == CATCH_UP:
            self._catch_up(turn)
        else:
            self._ask_others(turn)

    def _ask_others(self, turn: Turn) -> None:
        """Ask another neighbour for the messages that did not arrive in time."""
        for identifier in [each for each, pending in self._pending.items() if self._is_late(turn, pending)]:
            self._ask_next(turn, identifier)
        if self._pending:
            earliest_ns = min(pending.asked_ns for pending in self._pending.values())
            turn.set_timer(PULL, max(earliest_ns + PATIENCE_NS, turn.now_ns + 1))

    # -------------------------------------------------------------------------------------------- later receivers

    def _note_told(self, peer: NodeId, identifier: MessageId) -> None:
        """Note that a neighbour knows of a message."""
        if (recent := self._recent.get(identifier)) is not None:
            recent.told.add(peer)

    def _catch_up(self, turn: Turn) -> None:
        """Forward recent messages to neighbours that have become their receivers."""
        for identifier, recent in list(self._recent.items()):
            if recent.until_ns <= turn.now_ns:
                self._recent.forget(identifier)
                continue
            fresh = [peer for peer in self._receivers(recent.copy.topics) if peer not in recent.told]
            if fresh:
                recent.told.update(fresh)
                self._tell(turn, fresh, recent.copy)
        if self._recent:
            turn.set_timer(CATCH_UP, turn.now_ns + CATCH_UP_NS)

    @staticmethod
    def _is_late(turn: Turn, pending: Pending) -> bool:
        return turn.now_ns - pending.asked_ns >= PATIENCE_NS

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        for recent in self._recent.values():
            recent.told.discard(peer)  # its next instance does not know the message
        for identifier in [each for each, pending in self._pending.items() if pending.source == peer]:
            self._ask_next(turn, identifier)

    def _ask_next(self, turn: Turn, identifier: MessageId) -> None:
        pending = self._forget(identifier)
        while pending is not None and pending.sources:
            pending.source = pending.sources.pop(0)
            if pending.source in self.state.neighbours:
                pending.asked_ns = turn.now_ns
                self._pending[identifier] = pending
                self._asked[pending.source] += 1
                turn.send(pending.source, Pull(identifier))
                return
