"""The contract between a protocol and whatever drives it.

A node is one object with one entry point::

    effects = node.handle(now_ns, event)

The driver owns the clock, the sockets and the files; the node owns the protocol. The driver tells the node everything
by *events*, and the node does everything by *effects*. So the recorded ``(now_ns, event)`` pairs replay a node bit for
bit, and the same node runs in the simulator, as an emulated process and on a real machine.

Every node obeys two rules:

* A node never raises an exception because another node misbehaves. It returns ``Trace(reject)`` or ``Disconnect``. It
  raises an exception only if the driver breaks this contract, such as by a time that runs backwards or an event before
  ``Started``.
* The order of effects and of random draws never depends on the iteration order of a set.

Source: the design, section 3.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from peer.core.directory import Directory as Directory
from peer.core.directory import PeerInfo as PeerInfo
from peer.core.frames import Frame
from peer.core.identifiers import MessageId as MessageId
from peer.core.identifiers import NodeId as NodeId
from peer.core.identifiers import TopicId as TopicId
from peer.core.identifiers import message_id as message_id
from peer.core.identifiers import publisher_of as publisher_of
from peer.trace import TraceEvent


class Message(Struct, frozen=True, gc=False):
    """A message handed to the application. ``hops`` counts the links that this copy crossed."""

    message_id: MessageId
    topics: tuple[TopicId, ...]
    payload: bytes
    hops: int


# ---------------------------------------------------------------------------------------------------- events


class Event(Struct, frozen=True, tag=True, gc=False):
    """Something that happened to the node."""


class Started(Event, frozen=True):
    """The node's first event. The node has its initial subscriptions from its configuration."""


class PeerList(Event, frozen=True):
    """The bootstrap service's answer: the nodes that the node may connect to. It may name the node itself.

    If nodes join or leave during the run, the service answers again, and the last answer holds.
    """

    directory: Directory


class Leaving(Event, frozen=True):
    """The last event of a node that leaves in order. The frames that it sends now go out before its links close."""


class LinkUp(Event, frozen=True):
    """A physical link is ready for frames. ``outbound``: this node asked for it; the other node may have asked too."""

    peer: NodeId
    outbound: bool


class LinkDown(Event, frozen=True):
    """A physical link has ended, or the driver gave up the attempts to open one. Frames in flight may be lost.

    ``retrying``: this node asked for the link, and the driver goes on trying. Otherwise the driver has forgotten any
    ``Connect`` to the peer, and a node that still wants the link asks again.
    """

    peer: NodeId
    reason: str
    retrying: bool = False


class FrameReceived(Event, frozen=True):
    """A well-formed frame arrived over the link from ``peer``."""

    peer: NodeId
    frame: Frame


class TimerFired(Event, frozen=True):
    """The timer's instant has come; ``now_ns`` is never before it."""

    name: str


class Publish(Event, frozen=True):
    """The application publishes a message.

    ``expression``: which nodes the message is for, as a text of ``peer.core.addressing.expression`` over the keywords
    of topics (``peer.core.addressing.keywords``). If it is empty, the message is for the subscribers of its topics.
    Otherwise ``topics`` has a topic of each term, so each node that the message is for subscribes to one of them.
    """

    topics: tuple[TopicId, ...]
    message_id: MessageId
    payload: bytes
    expression: str = ""


class Subscribe(Event, frozen=True):
    """The application subscribes to a topic."""

    topic: TopicId


class Unsubscribe(Event, frozen=True):
    """The application unsubscribes from a topic."""

    topic: TopicId


# --------------------------------------------------------------------------------------------------- effects


class Effect(Struct, frozen=True, tag=True, gc=False):
    """Something that the driver must do for the node, in the order of the effects."""


class Send(Effect, frozen=True):
    """Queue a frame on the link to ``peer``. Without a link the driver drops it and traces the drop."""

    peer: NodeId
    frame: Frame


class SendEach(Effect, frozen=True):
    """``Send`` the same frame to each of some neighbours, in this order."""

    peers: Sequence[NodeId]
    frame: Frame


class SetTimer(Effect, frozen=True):
    """Set (or move) the timer called ``name`` to the instant ``at_ns``."""

    name: str
    at_ns: int


class CancelTimer(Effect, frozen=True):
    """Cancel a timer. The driver does nothing if it is not set."""

    name: str


class Connect(Effect, frozen=True):
    """Keep a link to ``peer`` up until ``Disconnect``.

    The driver redials with increasing pauses. It gives up after several failures in a row, or when the other side
    closed the link on purpose (``LinkDown.retrying``). It does nothing if there is a link already.
    """

    peer: NodeId


class Disconnect(Effect, frozen=True):
    """Close the link to ``peer`` and stop reconnecting."""

    peer: NodeId
    reason: str


class Deliver(Effect, frozen=True):
    """Deliver a message to the application: its first copy, if the node subscribes to one of its topics."""

    message: Message


class Trace(Effect, frozen=True):
    """Write a trace event. The node fills in its number and ``now_ns``; drivers add events of their own."""

    event: TraceEvent


def one_by_one(effects: Iterable[Effect]) -> Iterator[Effect]:
    """Yield the effects, with one ``Send`` per receiver instead of each ``SendEach``."""
    for effect in effects:
        if isinstance(effect, SendEach):
            yield from (Send(peer, effect.frame) for peer in effect.peers)
        else:
            yield effect


class Node(Protocol):
    """The interface that a driver calls."""

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        """Handle one event and return the effects.

        Args:
            now_ns: the present instant in ns, not before that of the previous event.
            event: what happened.

        Raises:
            ContractError: the driver broke the contract.
        """
        ...


class ContractError(RuntimeError):
    """A driver broke the contract; the node's state is undefined from here on."""
