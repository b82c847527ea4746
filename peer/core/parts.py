"""What the parts of a node share: its state, the turn in which one event is handled, and the part itself.

Every part reads the whole state. Each field has one writer, and any other write raises an exception. A part lists in
``Part.writes`` what it writes by ``Part.write``; no two parts of a node list the same field. The links follow from
events and from what parts ask of the ``Turn``: the state has read-only views of them, and the underscored fields behind
these views are for the node and the turn only.
"""

from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import force_setattr

from peer.core.contract import (
    CancelTimer,
    Connect,
    Deliver,
    Directory,
    Disconnect,
    Effect,
    Message,
    NodeId,
    Publish,
    Send,
    SendEach,
    SetTimer,
    TopicId,
    Trace,
)
from peer.core.frames import Data, Frame
from peer.core.observed_links import ObservedLinks
from peer.trace import TraceEvent


class Neighbour(Struct, frozen=True, eq=False):
    """The other end of a physical link.

    Attributes:
        outbound: whether this node asked for the link. An overlay that counts the links of its own choice keeps it
            current where both sides may choose the same one.
        interests: the topics that it subscribes to, as it reported them; empty until it has, or if nodes do not.
        forwards: the topics on which messages go on to it: its interests, or what the overlay decides.
        logical: the topics of the logical links on this physical one, in rising order.
        brief: whether this node's overlay has the link only for a question and its answer. Snapshots of studies leave
            out links that are brief at both ends.
    """

    outbound: bool
    interests: frozenset[TopicId] = frozenset()
    forwards: frozenset[TopicId] = frozenset()
    logical: tuple[TopicId, ...] = ()
    brief: bool = False


def admit_all(peer: NodeId, topic: TopicId) -> bool:
    """Every neighbour may send messages on every topic."""
    return True


class State:
    """What a node knows of itself and of its links.

    ``topics`` is only asked for membership, never iterated. ``neighbours`` is in the order in which the links came up,
    which follows from the events alone.

    Attributes:
        topics: what the node subscribes to.
        neighbours: the other ends of the links that all parts see.
        borrowed: the nodes to which a part that ``borrows`` asked for a link; only asked for membership.
        wanted: those to which any other part did; only asked for membership.
        aside: those to which there is a link that only a part that ``borrows`` uses, on either side.
        numbers: every number below it may be a node's; no node has a higher one, as far as the bootstrap service and
            the plan have named nodes. What remote nodes claim never raises it.
        admits: whether a neighbour may send messages on a topic. Every one may, unless the overlay knows better.
        directs: the neighbours to which messages on a topic go on, where the overlay computes them. None = those with
            the topic in ``forwards``.
    """

    __slots__ = (
        "_aside",
        "_borrowed",
        "_neighbours",
        "_receivers",
        "_wanted",
        "admits",
        "aside",
        "borrowed",
        "directs",
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
        self.numbers = max(node + 1, nodes)
        self.admits: Callable[[NodeId, TopicId], bool] = admit_all
        self.directs: Callable[[TopicId], tuple[NodeId, ...]] | None = None
        self._neighbours: dict[NodeId, Neighbour] = {}
        self._borrowed: dict[NodeId, None] = {}
        self._wanted: dict[NodeId, None] = {}
        self._aside: dict[NodeId, None] = {}
        self._receivers: dict[TopicId, tuple[NodeId, ...]] = {}
        self.neighbours: Mapping[NodeId, Neighbour] = MappingProxyType(self._neighbours)
        self.borrowed: KeysView[NodeId] = self._borrowed.keys()
        self.wanted: KeysView[NodeId] = self._wanted.keys()
        self.aside: KeysView[NodeId] = self._aside.keys()

    def __setattr__(self, field: str, value: object) -> None:
        """Set a field for the first time."""
        if hasattr(self, field):
            raise AttributeError(f"state.{field} cannot be assigned: its owner writes it by Part.write")
        object.__setattr__(self, field, value)

    def may_be_node(self, number: int) -> bool:
        """Whether a number that a remote node names can be a node's; anything else is neither stored nor dialled."""
        return 0 <= number < self.numbers

    def is_linked(self, peer: NodeId) -> bool:
        """Whether frames can be sent to a peer, including over a link that most parts do not see."""
        return peer in self._neighbours or peer in self._aside

    def receivers(self, topic: TopicId) -> tuple[NodeId, ...]:
        """The neighbours to which messages on a topic go on, in the order of ``neighbours`` unless ``directs``."""
        if self.directs is not None:
            return self.directs(topic)
        peers = self._receivers.get(topic)
        if peers is None:
            peers = tuple(peer for peer, neighbour in self._neighbours.items() if topic in neighbour.forwards)
            self._receivers[topic] = peers
        return peers


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
        self._state._wanted[peer] = None
        self.effects.append(Connect(peer))
        if peer in self._state._aside:
            self.claimed = (*self.claimed, peer)

    def disconnect(self, peer: NodeId, reason: str) -> None:
        """Close a link, or ask for it no longer."""
        self._state._wanted.pop(peer, None)
        if peer in self._state._neighbours or peer not in self._state._borrowed:
            self.effects.append(Disconnect(peer, reason))

    def borrow(self, peer: NodeId) -> None:
        """Ask for a link that the other parts do not see unless they ask for it too."""
        self._state._borrowed[peer] = None
        self.effects.append(Connect(peer))

    def give_back(self, peer: NodeId, reason: str) -> None:
        """Need a borrowed link no longer: it closes, unless another part of this node or of the peer uses it."""
        self._state._borrowed.pop(peer, None)
        if peer not in self._state._neighbours and peer not in self._state._wanted:
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
    """One of the parts that a node is composed of.

    The node calls one method per event (``start`` ... ``unsubscribe``); each does nothing unless a part overrides it. A
    part answers by calling methods of the ``Turn``, and may read all of ``state``. It writes only the fields that it
    lists in ``writes``, by ``write`` and ``set_logical``.
    """

    Parameters: ClassVar[type[Struct]] = NoParameters
    """What may be set. An experiment's section of the part's name has this form."""

    frames: ClassVar[tuple[type[Frame], ...]] = ()
    """The frame types that this part receives; no two parts of a node share one."""

    writes: ClassVar[frozenset[str]] = frozenset()
    """The fields of ``State`` and ``Neighbour`` that this part writes; no two parts of a node share one."""

    overhears: ClassVar[tuple[type[Frame], ...]] = ()
    """Frame types of other parts, with their subclasses, that this part learns from; it hears of each before the part
    that receives it."""

    borrows: ClassVar[bool] = False
    """Whether it opens links for a moment, for itself. A node has at most one such part, and hides these links from the
    others on both sides."""

    __slots__ = ("state",)

    def __init__(self, state: State) -> None:
        self.state = state

    def write(self, peer: NodeId | None = None, /, **fields: Any) -> None:  # noqa: ANN401 - the fields' own types
        """Write fields of a neighbour, or of the state itself.

        Raises:
            AttributeError: a field is not in ``writes``.
        """
        state = self.state
        for field, value in fields.items():
            if field not in self.writes:
                raise AttributeError(f"{type(self).__name__} writes {sorted(self.writes)}, not {field}")
            if peer is None:
                object.__setattr__(state, field, value)
            else:
                force_setattr(state._neighbours[peer], field, value)
            if field == "forwards":
                state._receivers.clear()

    def set_logical(self, turn: Turn, peer: NodeId, topics: tuple[TopicId, ...], reason: str) -> None:
        """Say which topics' logical links the link to a neighbour carries now, and trace those that begin or end.

        Args:
            turn: the present one.
            peer: the neighbour.
            topics: in rising order.
            reason: why links end.
        """
        before = self.state._neighbours[peer].logical
        if topics == before:
            return
        self.write(peer, logical=topics)
        if ended := tuple(topic for topic in before if topic not in topics):
            turn.trace("prune", peer=peer, topics=ended, reason=reason)
        if begun := tuple(topic for topic in topics if topic not in before):
            turn.trace("graft", peer=peer, topics=begun)

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
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks] | None:
        """How an observer on the wire reads the logical links that this part decides over; of parts that do.

        None = not from frames alone.

        Args:
            parameters: the part's, as a node's specification has them.
        """
        return None

    @staticmethod
    def copies_may_wait(parameters: Mapping[str, Any]) -> bool:
        """Whether a publisher's first copy may wait for other nodes, such as for a request; of a dissemination."""
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
