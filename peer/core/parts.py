"""The common code of the parts of a node: its state, the turn in which one event is handled, and the part itself.

Every part reads the whole state. Each field has one writer, and any other write raises an exception. A part lists in
``Part.writes`` the fields that it writes by ``Part.write``; no two parts of a node list the same field. The links
follow from events and from the parts' calls of the ``Turn``: the state has read-only views of them, and only the node
and the turn use the underscored fields behind these views.
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
    """The node at the other end of a physical link.

    Attributes:
        outbound: whether this node asked for the link. If both nodes may choose the same link, an overlay that counts
            the links of its own choice updates this field.
        interests: the topics that the neighbour said it subscribes to; empty before it says so, or if nodes do not.
        forwards: the topics whose messages this node forwards to it: its interests, or as the overlay decides.
        logical: the topics of the logical links on this physical link, in rising order.
        brief: whether this node's overlay has the link only for a question and its answer. Snapshots of studies leave
            out links that are brief at both ends.
    """

    outbound: bool
    interests: frozenset[TopicId] = frozenset()
    forwards: frozenset[TopicId] = frozenset()
    logical: tuple[TopicId, ...] = ()
    brief: bool = False


def admit_all(peer: NodeId, topic: TopicId) -> bool:
    """Return True: every neighbour may send messages on every topic."""
    return True


class State:
    """What a node knows about itself and its links.

    Parts test membership in ``topics`` and never iterate over it. ``neighbours`` is in the order in which the links
    came up, which follows from the events alone.

    Attributes:
        topics: the topics that the node subscribes to.
        neighbours: the other ends of the links that all parts see.
        borrowed: the nodes to which a part that ``borrows`` asked for a link. Parts only test membership.
        wanted: the nodes to which any other part asked for a link. Parts only test membership.
        aside: the nodes with a link that only a part that ``borrows`` uses, on either side.
        numbers: each number below it may be a node's. It exceeds all numbers that the bootstrap service and the plan
            have named. Claims of remote nodes never raise it.
        admits: whether a neighbour may send messages on a topic: always, unless the overlay replaces the function.
        directs: the function by which the overlay computes the neighbours to which this node forwards messages on a
            topic. None = the neighbours with the topic in ``forwards``.
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
        """Return whether a number that a remote node names may be a node's. Parts neither store nor dial any other."""
        return 0 <= number < self.numbers

    def is_linked(self, peer: NodeId) -> bool:
        """Return whether frames can be sent to a peer, including over a link that most parts do not see."""
        return peer in self._neighbours or peer in self._aside

    def receivers(self, topic: TopicId) -> tuple[NodeId, ...]:
        """Return the neighbours to which this node forwards messages on a topic.

        They are in the order of ``neighbours``, unless ``directs`` computes them.
        """
        if self.directs is not None:
            return self.directs(topic)
        peers = self._receivers.get(topic)
        if peers is None:
            peers = tuple(peer for peer, neighbour in self._neighbours.items() if topic in neighbour.forwards)
            self._receivers[topic] = peers
        return peers


class Turn(Struct, gc=False):
    """The handling of one event: its instant, and the effects collected so far.

    A link exists as long as a part needs it. Parts that call ``connect`` share it, and it ends when one of them calls
    ``disconnect``. A part that needs a link only briefly calls ``borrow`` and ``give_back``, which do not affect a link
    that other parts use.

    Attributes:
        now_ns: the instant of the event, in ns of virtual time.
        claimed: the nodes with a borrowed link for which another part has asked in this turn.
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
        """Close a link, or withdraw the request for it."""
        self._state._wanted.pop(peer, None)
        if peer in self._state._neighbours or peer not in self._state._borrowed:
            self.effects.append(Disconnect(peer, reason))

    def borrow(self, peer: NodeId) -> None:
        """Ask for a link that the other parts do not see unless they ask for it, too."""
        self._state._borrowed[peer] = None
        self.effects.append(Connect(peer))

    def give_back(self, peer: NodeId, reason: str) -> None:
        """Release a borrowed link. It closes unless another part of this node or of the peer uses it."""
        self._state._borrowed.pop(peer, None)
        if peer not in self._state._neighbours and peer not in self._state._wanted:
            self.effects.append(Disconnect(peer, reason))

    def set_timer(self, name: str, at_ns: int) -> None:
        """Set or move a timer. Its ``name`` starts with the part's role and a slash, so the node finds the part."""
        self.effects.append(SetTimer(name, at_ns))

    def cancel_timer(self, name: str) -> None:
        """Cancel a timer."""
        self.effects.append(CancelTimer(name))

    def deliver(self, message: Message) -> None:
        """Deliver a message to the application."""
        self.effects.append(Deliver(message))

    def trace_copy(self, event: str, peer: NodeId, copy: Data) -> None:
        """Trace what happened to a copy from a neighbour. It is faster than ``trace``, since copies are frequent.

        Args:
            event: the name of the trace event.
            peer: the neighbour.
            copy: the copy.
        """
        written = TraceEvent(event, self.now_ns, self._state.node, peer, copy.message_id, copy.topics, hops=copy.hops)
        self.effects.append(Trace(written))

    def trace(self, event: str, **fields: Any) -> None:  # noqa: ANN401 - the fields of TraceEvent, checked by it
        """Trace an event of this node at this instant."""
        self.effects.append(Trace(TraceEvent(event, self.now_ns, self._state.node, **fields)))


class NoParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """No parameters."""


class Part:
    """A part of a node.

    The node calls one method per event (``start`` ... ``unsubscribe``); each does nothing unless a part overrides it. A
    part acts by calling methods of the ``Turn``, and may read all of ``state``. It writes only the fields that it
    lists in ``writes``, by ``write`` and ``set_logical``.
    """

    Parameters: ClassVar[type[Struct]] = NoParameters
    """The form of the part's parameters, and of the section of an experiment with the part's name."""

    frames: ClassVar[tuple[type[Frame], ...]] = ()
    """The frame types that this part receives; no two parts of a node share one."""

    writes: ClassVar[frozenset[str]] = frozenset()
    """The fields of ``State`` and ``Neighbour`` that this part writes; no two parts of a node share one."""

    overhears: ClassVar[tuple[type[Frame], ...]] = ()
    """Frame types of other parts, with their subclasses, that this part reads. It gets each frame before the part that
    receives it."""

    borrows: ClassVar[bool] = False
    """Whether it opens brief links for itself. A node has at most one such part, and hides these links from the other
    parts on both sides."""

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
        """Set the topics of the logical links on the link to a neighbour, and trace the links that begin or end.

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
        """Return whether copies between two subscribers of their topic travel on logical links only (disseminations).

        Args:
            parameters: the part's parameters, as in the specification of a node.
            told: whether nodes tell all their neighbours their interests, so that every shared topic is a logical link.
            several: whether messages are on several topics.
        """
        return False

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks] | None:
        """Return how an observer of the frames reads the logical links that this part decides on.

        None = the part decides on none, or frames do not show them.

        Args:
            parameters: the part's parameters, as in the specification of a node.
        """
        return None

    @staticmethod
    def copies_may_wait(parameters: Mapping[str, Any]) -> bool:
        """Return whether a publisher's first copy may wait for other nodes, such as for a request (disseminations)."""
        return False

    @staticmethod
    def ask_interests(node: NodeId, topics: tuple[TopicId, ...]) -> Iterable[Frame]:
        """Return the frames with which ``node`` may ask a neighbour with this part for subscribers of these topics.

        There are none if nodes tell every neighbour without being asked.
        """
        return ()

    def start(self, turn: Turn) -> None:
        """Handle the node's first event."""

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Take an answer of the bootstrap service, which may answer again later."""

    def leave(self, turn: Turn) -> None:
        """Send the last frames before the node leaves in order. This is its last turn."""

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """Handle a new link, which is in ``state.neighbours``."""

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Handle the end of a link, or of the attempts to open one; it is not in ``state.neighbours`` any more.

        Args:
            turn: the present turn.
            peer: the node at the other end.
            reason: why the link ended.
            retrying: whether the driver goes on trying (``peer.core.contract.LinkDown``).
        """

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Handle a frame of one of the types in ``frames``.

        Args:
            turn: the present turn.
            peer: the neighbour that sent it.
            frame: the frame.
        """

    def overhear(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Read a frame of one of the types in ``overhears``.

        Args:
            turn: the present turn.
            peer: the neighbour that sent it.
            frame: the frame.
        """

    def fire(self, turn: Turn, name: str) -> None:
        """Handle a timer of this part; ``name`` is its whole name."""

    def publish(self, turn: Turn, publication: Publish) -> None:
        """Publish a message of the application."""

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        """Subscribe to a topic that the node does not subscribe to yet."""

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """End the subscription to a topic that the node subscribes to."""
