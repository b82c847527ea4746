"""What the parts of a node share: its state, the turn in which one event is handled, and the part itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from peer.core.contract import (
    CancelTimer,
    Connect,
    Deliver,
    Directory,
    Disconnect,
    Effect,
    Message,
    Node,
    NodeId,
    Publish,
    Send,
    SendEach,
    SetTimer,
    TopicId,
    Trace,
)
from peer.core.frames import Data, Frame
from peer.trace import TraceEvent


class Neighbour:
    """The other end of a physical link.

    Attributes:
        outbound: whether this node asked for the link. An overlay that counts the links of its own choice keeps it
            current where both sides may choose the same one.
        topics: what it subscribes to, by its own word; empty until it has said so.
        logical: the topics of the logical links on this physical one, in rising order.
        brief: whether this node's overlay has the link only for a question and its answer. Snapshots of studies leave
            out links that are brief at both ends.
    """

    __slots__ = ("brief", "logical", "outbound", "topics")

    def __init__(self, outbound: bool) -> None:
        self.outbound = outbound
        self.topics: frozenset[TopicId] = frozenset()
        self.logical: tuple[TopicId, ...] = ()
        self.brief = False


def admit_all(peer: NodeId, topic: TopicId) -> bool:
    """Every neighbour may send messages on every topic."""
    return True


class State:
    """What a node knows of itself and of its links; every part may read it.

    ``topics`` is only asked for membership, never iterated. ``neighbours`` is in the order in which the links came up,
    which follows from the events alone.

    Attributes:
        borrowed: the nodes to which a part that ``borrows`` asked for a link; only asked for membership.
        wanted: those to which any other part did; only asked for membership.
        aside: those to which there is a link that only a part that ``borrows`` uses, on either side.
        numbers: every number below it may be a node's; no node has a higher one, as far as the bootstrap service and
            the plan have named nodes. What remote nodes claim never raises it.
        admits: whether a neighbour may send messages on a topic. Every one may, unless the overlay knows better.
    """

    __slots__ = (
        "_interested",
        "admits",
        "aside",
        "borrowed",
        "neighbours",
        "node",
        "numbers",
        "seed",
        "topics",
        "wanted",
    )

    def __init__(self, node: NodeId, seed: int, topics: tuple[TopicId, ...], nodes: int = 0) -> None:
        self.node = node
        self.seed = seed
        self.topics = frozenset(topics)
        self.neighbours: dict[NodeId, Neighbour] = {}
        self.borrowed: set[NodeId] = set()
        self.wanted: set[NodeId] = set()
        self.aside: set[NodeId] = set()
        self.numbers = max(node + 1, nodes)
        self.admits: Callable[[NodeId, TopicId], bool] = admit_all
        self._interested: dict[TopicId, tuple[NodeId, ...]] = {}

    def may_be_node(self, number: int) -> bool:
        """Whether a number that a remote node names can be a node's; anything else is neither stored nor dialled."""
        return 0 <= number < self.numbers

    def is_linked(self, peer: NodeId) -> bool:
        """Whether frames can be sent to a peer, be it over a link that most parts do not see."""
        return peer in self.neighbours or peer in self.aside

    def set_interest(self, peer: NodeId, topics: frozenset[TopicId]) -> None:
        """Write down what a neighbour subscribes to. Nothing else may change its ``topics``."""
        self.neighbours[peer].topics = topics
        self._interested.clear()

    def interested(self, topic: TopicId) -> tuple[NodeId, ...]:
        """The neighbours that subscribe to a topic, in the order of ``neighbours``."""
        peers = self._interested.get(topic)
        if peers is None:
            peers = tuple(peer for peer, neighbour in self.neighbours.items() if topic in neighbour.topics)
            self._interested[topic] = peers
        return peers

    def drop_neighbour(self, peer: NodeId) -> Neighbour | None:
        """Forget a neighbour whose link is gone, if it is one."""
        self._interested.clear()
        return self.neighbours.pop(peer, None)

    def set_logical(self, turn: Turn, peer: NodeId, topics: tuple[TopicId, ...], reason: str) -> None:
        """Say which topics' logical links the link to a neighbour carries now; what begins or ends is traced.

        Called by the one part that decides over logical links: the interests part where any shared topic makes one,
        the overlay where it keeps neighbours or views of its own. ``topics`` rise; ``reason`` is for those that end.
        """
        neighbour = self.neighbours[peer]
        before, neighbour.logical = neighbour.logical, topics
        if ended := tuple(topic for topic in before if topic not in topics):
            turn.trace("prune", peer=peer, topics=ended, reason=reason)
        if begun := tuple(topic for topic in topics if topic not in before):
            turn.trace("graft", peer=peer, topics=begun)


class StatefulNode(Node, Protocol):
    """A node whose state its driver may read."""

    state: State


class Turn(Struct, gc=False):
    """The handling of one event: the instant, and the effects collected so far.

    A link is there as long as a part needs it. Parts that ``connect`` share it; it ends when one of them says
    ``disconnect``. A part that only needs it for a moment may ``borrow`` it and ``give_back``, which touches no link
    that others use.

    Attributes:
        claimed: the nodes to which there was a borrowed link when another part asked for one.
    """

    _state: State
    now_ns: int
    effects: list[Effect] = []
    claimed: Sequence[NodeId] = ()

    def send(self, peer: NodeId, frame: Frame) -> None:
        """Queue a frame for a neighbour."""
        self.effects.append(Send(peer, frame))

    def send_each(self, peers: Sequence[NodeId], frame: Frame) -> None:
        """Queue a frame for each of some neighbours."""
        if peers:
            self.effects.append(SendEach(peers, frame))

    def connect(self, peer: NodeId) -> None:
        """Ask for a link."""
        self._state.wanted.add(peer)
        self.effects.append(Connect(peer))
        if peer in self._state.aside:
            self.claimed = (*self.claimed, peer)

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Close a link, or ask for it no longer."""
        self._state.wanted.discard(peer)
        if peer in self._state.neighbours or peer not in self._state.borrowed:
            self.effects.append(Disconnect(peer, reason))

    def borrow(self, peer: NodeId) -> None:
        """Ask for a link that the other parts do not see unless they ask for it too."""
        self._state.borrowed.add(peer)
        self.effects.append(Connect(peer))

    def give_back(self, peer: NodeId, reason: str) -> None:
        """Need a borrowed link no longer: it closes, unless another part of this node or of the peer uses it."""
        self._state.borrowed.discard(peer)
        if peer not in self._state.neighbours and peer not in self._state.wanted:
            self.effects.append(Disconnect(peer, reason))

    def set_timer(self, name: str, at_ns: int) -> None:
        """Set a timer; ``name`` starts with the part's role and a slash, by which it finds its way back."""
        self.effects.append(SetTimer(name, at_ns))

    def cancel_timer(self, name: str) -> None:
        """Forget a timer."""
        self.effects.append(CancelTimer(name))

    def deliver(self, message: Message) -> None:
        """Hand a message to the application."""
        self.effects.append(Deliver(message))

    def trace_copy(self, event: str, peer: NodeId, copy: Data) -> None:
        """Write down what became of a copy from a neighbour; without the detour over names, as there are so many."""
        written = TraceEvent(event, self.now_ns, self._state.node, peer, copy.message_id, copy.topics, hops=copy.hops)
        self.effects.append(Trace(written))

    def trace(self, event: str, **fields: Any) -> None:  # noqa: ANN401 - the fields of TraceEvent, checked by it
        """Write down what happened, with this instant and node."""
        self.effects.append(Trace(TraceEvent(event, self.now_ns, self._state.node, **fields)))


class NoParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Nothing to set."""


class Part:
    """One of the parts that a node is composed of. Each method handles one kind of event; the default ignores it.

    ``state`` is kept by the composition and the interests part; other parts only read it.
    """

    Parameters: ClassVar[type[Struct]] = NoParameters
    """What may be set. An experiment's section of the part's name has this form."""

    frames: ClassVar[tuple[type[Frame], ...]] = ()
    """The frame types that this part receives; no two parts of a node share one."""

    rides_on: ClassVar[type[Part] | None] = None
    """The overlay that this dissemination shares its work with; its constructor then takes ``(state, overlay,
    parameters)``."""

    overhears: ClassVar[tuple[type[Frame], ...]] = ()
    """Frame types of other parts, with their subclasses, that this part learns from; it hears of each before the part
    that receives it."""

    borrows: ClassVar[bool] = False
    """Whether it opens links for a moment, for itself. A node has at most one such part, and hides these links from the
    others on both sides."""

    __slots__ = ("state",)

    def __init__(self, state: State) -> None:
        self.state = state

    @staticmethod
    def copies_follow_links(parameters: Mapping[str, Any], *, told: bool, several: bool) -> bool:
        """Whether copies between two subscribers of their topic travel on logical links alone; of a dissemination.

        Args:
            parameters: the part's, as a node's specification has them.
            told: whether nodes tell all their neighbours their interests, so that every shared topic is a logical link.
            several: whether messages are on several topics.
        """
        return False

    @staticmethod
    def ask_interests(node: NodeId, topics: tuple[TopicId, ...]) -> Iterable[Frame]:
        """What ``node`` may send to a neighbour with this part to be told who subscribes to these topics.

        There is no need to ask where nodes tell every neighbour.
        """
        return ()

    def start(self, turn: Turn) -> None:
        """The node's first event."""

    def meet(self, turn: Turn, directory: Directory) -> None:
        """The bootstrap service answered; it may do so again."""

    def leave(self, turn: Turn) -> None:
        """The node leaves in order: its last turn."""

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """A link came up; ``state.neighbours`` has it."""

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """A link is gone, or the attempts at one were given up; ``state.neighbours`` no longer has it."""

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """A frame of one of this part's types came from a neighbour."""

    def overhear(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """A frame of one of the ``overhears`` types came from a neighbour."""

    def fire(self, turn: Turn, name: str) -> None:
        """A timer of this part fired; ``name`` is the whole name."""

    def publish(self, turn: Turn, publication: Publish) -> None:
        """The application publishes."""

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        """The application wants a topic that it did not want before."""

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """The application no longer wants a topic that it wanted before."""
