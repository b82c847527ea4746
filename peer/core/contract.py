"""The contract between a protocol and whatever drives it.

A node is one object with one entry point::

    effects = node.handle(now_ns, event)

The driver owns the clock, the sockets and the files; the node owns the protocol. The node learns of the world
only through *events* and acts on it only through *effects*, so the recorded ``(now_ns, event)`` pairs replay a
node bit for bit, and the same node runs in the simulator, as an emulated process and on a real machine.

Two rules bind every node:

* Remote misbehaviour never raises. It yields ``Trace(reject)`` or ``Disconnect``. Only a driver that breaks this
  contract (time running backwards, an event before ``Started``) makes a node raise.
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
    """The node's first event. Its initial subscriptions arrived with its configuration."""


class PeerList(Event, frozen=True):
    """The bootstrap service's answer: the nodes one may connect to; it may name the node itself.

    Where nodes come and go, the service answers again, and the last answer holds.
    """

    directory: Directory


class Leaving(Event, frozen=True):
    """The node's last event where it leaves in order: what it still sends goes out before its links close."""


class LinkUp(Event, frozen=True):
    """A physical link is ready for frames. ``outbound``: this node asked for it (both may have)."""

    peer: NodeId
    outbound: bool


class LinkDown(Event, frozen=True):
    """A physical link is gone, or the attempts at one were given up. Frames in flight may be lost.

    ``retrying``: this node asked for the link, and the driver goes on trying. Otherwise the driver has forgotten any
    ``Connect`` to the peer: who still wants the link asks again.
    """

    peer: NodeId
    reason: str
    retrying: bool = False


class FrameReceived(Event, frozen=True):
    """A well-formed frame came in over the link from ``peer``."""

    peer: NodeId
    frame: Frame


class TimerFired(Event, frozen=True):
    """The timer's instant has come; ``now_ns`` is never before it."""

    name: str


class Publish(Event, frozen=True):
    """The application publishes.

    ``expression``: which nodes the message is for, as a text of ``peer.core.addressing.expression`` over the keywords
    of topics (``peer.core.addressing.keywords``). If it is empty, the message is for the subscribers of its topics.
    Otherwise ``topics`` has a topic of each term, so each node that the message is for subscribes to one of them.
    """

    topics: tuple[TopicId, ...]
    message_id: MessageId
    payload: bytes
    expression: str = ""


class Subscribe(Event, frozen=True):
    """The application takes an interest in a topic."""

    topic: TopicId


class Unsubscribe(Event, frozen=True):
    """The application loses its interest in a topic."""

    topic: TopicId


# --------------------------------------------------------------------------------------------------- effects


class Effect(Struct, frozen=True, tag=True, gc=False):
    """Something that the node wants done, in the order given."""


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
    """Forget a timer. Cancelling one that is not set does nothing."""

    name: str


class Connect(Effect, frozen=True):
    """Keep a link to ``peer`` up until ``Disconnect``.

    The driver reconnects with backoff, but gives up after several failures in a row, or when the other side closed
    the link on purpose: see ``LinkDown.retrying``. It does nothing where there is a link already.
    """

    peer: NodeId


class Disconnect(Effect, frozen=True):
    """Close the link to ``peer`` and stop reconnecting."""

    peer: NodeId
    reason: str


class Deliver(Effect, frozen=True):
    """Hand a message to the application: the first copy, on a topic that the node subscribes to."""

    message: Message


class Trace(Effect, frozen=True):
    """Write a trace event. The node fills in its number and ``now_ns``; drivers add events of their own."""

    event: TraceEvent


def one_by_one(effects: Iterable[Effect]) -> Iterator[Effect]:
    """The effects with a ``Send`` for each receiver of a ``SendEach``."""
    for effect in effects:
        if isinstance(effect, SendEach):
            yield from (Send(peer, effect.frame) for peer in effect.peers)
        else:
            yield effect


class Node(Protocol):
    """What a driver drives."""

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        """Take one event at the instant ``now_ns`` (ns, never before the previous one's) and say what to do.

        Raises:
            ContractError: the driver broke the contract.
        """
        ...


class ContractError(RuntimeError):
    """A driver broke the contract; the node's state is undefined from here on."""
