"""Gossip between pairs of nodes: the common part of Cyclon and Newscast.

In every period, a node sends some entries to one node of its view and gets some entries in return. The two protocols
differ in which node they ask, which entries they send, and which entries they keep.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta, Struct

from peer.core.bitset import Bitset, bitset, members, sample
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.directory import NOTHING
from peer.core.frames import Disclosure, Frame
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream

ROUND = "membership/round"
SECOND_NS = 1_000_000_000
HIGHEST_NODE = 1 << 20
"""No node has a larger number, so that a view's bitset stays below 128 KiB whatever others claim."""


class Descriptor(Struct, frozen=True, array_like=True, gc=False):
    """What an exchange tells about a node: the age of the entry on the protocol's clock, and disclosed interests."""

    node: Annotated[int, Meta(ge=0, lt=HIGHEST_NODE)]
    age: Annotated[int, Meta(ge=0, lt=2**53)]
    topics: tuple[Annotated[int, Meta(ge=0, lt=2**32)], ...] | None = None


class GossipFrame(Frame, frozen=True):
    """One direction of an exchange."""

    entries: tuple[Descriptor, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return ((entry.node, entry.topics or ()) for entry in self.entries)


class Entry(NamedTuple):
    """A node of a view. ``since``: the instant on this node's clock at which the entry had age 0."""

    since: int
    topics: tuple[TopicId, ...] | None


class GossipParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The parameters of every gossip membership."""

    period_s: Annotated[float, Meta(gt=0, le=604_800)] = 5.0
    """Time between two exchanges that a node begins. An exchange that lasts until the next one has failed."""
    contacts: Annotated[int, Meta(ge=1)] = 5
    """Nodes that the bootstrap service gives to a node that knows no others, drawn uniformly."""


class GossipMembership(Part):
    """A view that changes by exchanges over borrowed links.

    An exchange uses the existing link to the partner, or borrows one until it ends. The node that answers never opens
    or closes a link. If the other side closes the link during an exchange because it does not know of it, the exchange
    begins again over a link that this node borrows.

    A node uses the bootstrap service's answer only while its view is empty. Entries contain interests only if that
    service discloses them.

    Subclasses define the ``clock`` of ages, the choice of partners and entries, and the merge.

    Attributes:
        partner: the node of the exchange that this node began; None = no exchange.
    """

    borrows = True
    request: ClassVar[type[GossipFrame]]
    reply: ClassVar[type[GossipFrame]]

    def __init__(self, state: State, parameters: GossipParameters, size: int) -> None:
        super().__init__(state)
        self.size = size
        self.view: dict[NodeId, Entry] = {}
        self.draws = substream(state.seed, state.node, "membership")
        self._contacts = min(parameters.contacts, size)
        self._period_ns = max(round(parameters.period_s * SECOND_NS), 1)
        self._directory = Directory()
        self.partner: NodeId | None = None
        self._asked = False
        self._again = False
        self._known: Bitset | None = None
        self._subscribers: dict[TopicId, Bitset] | None = None

    # ------------------------------------------------------------------------------------ decisions of a protocol

    def clock(self, turn: Turn) -> int:
        """Return the present instant in units of age."""
        raise NotImplementedError

    def next_partner(self, turn: Turn) -> NodeId:
        """Return the node to begin an exchange with. The view is not empty."""
        raise NotImplementedError

    def offer(self, turn: Turn) -> tuple[Descriptor, ...]:
        """Return the entries to send to the partner when an exchange begins."""
        raise NotImplementedError

    def answer(self, turn: Turn, entries: tuple[Descriptor, ...]) -> tuple[Descriptor, ...]:
        """Take the entries of a node that began an exchange, and return the entries for it."""
        raise NotImplementedError

    def conclude(self, turn: Turn, entries: tuple[Descriptor, ...]) -> None:
        """Take the entries that the partner returned."""
        raise NotImplementedError

    def fail(self, turn: Turn, partner: NodeId) -> None:
        """Handle the failure of an exchange with a partner."""

    @property
    def most_entries(self) -> int:
        """The length of the longest offer or answer."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ for the overlay

    @property
    def known(self) -> Bitset:
        """The nodes of the view."""
        if self._known is None:
            self._known = bitset(self.view)
        return self._known

    def topics_of(self, node: NodeId) -> frozenset[TopicId]:
        entry = self.view.get(node)
        return frozenset(entry.topics) if entry is not None and entry.topics else NOTHING

    def subscribers(self, topic: TopicId) -> Bitset:
        if self._subscribers is None:
            nodes: dict[TopicId, list[NodeId]] = {}
            for node, entry in self.view.items():
                for each in entry.topics or ():
                    nodes.setdefault(each, []).append(node)
            self._subscribers = {each: bitset(subscribers) for each, subscribers in nodes.items()}
        return self._subscribers.get(topic, 0)

    # ------------------------------------------------------------------------------------------------- the view

    def describe(self, turn: Turn, nodes: Iterable[NodeId]) -> tuple[Descriptor, ...]:
        now, view = self.clock(turn), self.view
        return tuple([Descriptor(node, max(now - view[node].since, 0), view[node].topics) for node in nodes])

    def describe_self(self) -> Descriptor:
        """Return this node's own entry, of age 0."""
        disclosed = self._directory.discloses(self.state.node)
        return Descriptor(self.state.node, 0, tuple(sorted(self.state.topics)) if disclosed else None)

    def changed(self) -> None:
        self._known = self._subscribers = None

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Keep the answer, and use it if the view is empty."""
        self._directory = directory
        self._bootstrap(turn)

    def _bootstrap(self, turn: Turn) -> None:
        if self.view:
            return
        others = self._directory.nodes & ~(1 << self.state.node)
        contacts = list(members(sample(others, self._contacts, self.draws)))
        self.draws.shuffle(contacts)
        for node in contacts:
            told = self._directory.discloses(node)
            topics = tuple(sorted(self._directory.topics_of(node))) if told else None
            self.view[node] = Entry(self.clock(turn), topics)
        self.changed()

    # ---------------------------------------------------------------------------------------------- the exchanges

    def start(self, turn: Turn) -> None:
        """Begin at a random instant within the first period, so that the exchanges of all nodes spread over time."""
        turn.set_timer(ROUND, turn.now_ns + self.draws.randrange(self._period_ns))

    def fire(self, turn: Turn, name: str) -> None:
        turn.set_timer(ROUND, turn.now_ns + self._period_ns)
        if self.partner is not None:
            self._end(turn, "unanswered", failed=True)
        self._bootstrap(turn)
        if self.view:
            self.partner, self._again = self.next_partner(turn), False
            self._reach(turn)

    def _reach(self, turn: Turn) -> None:
        """Ask the partner, or borrow a link to it first."""
        assert self.partner is not None, "there is an exchange"
        self._asked = self.state.is_linked(self.partner)
        if self._asked:
            turn.send(self.partner, self.request(self.offer(turn)))
        else:
            turn.borrow(self.partner)

    def _end(self, turn: Turn, reason: str, *, failed: bool) -> None:
        partner, self.partner, self._asked = self.partner, None, False
        assert partner is not None, "there is an exchange"
        if partner in self.state.borrowed:
            turn.give_back(partner, reason)
        if failed:
            self.fail(turn, partner)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        if peer == self.partner and not self._asked:
            self._reach(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Begin the exchange again, once, if its link ended during the exchange. Otherwise note its failure."""
        if peer != self.partner:
            return
        interrupted, self._asked = self._asked, False
        if retrying and peer in self.state.borrowed:
            return
        if interrupted and not self._again:
            self._again = True
            self._reach(turn)
        else:
            self._end(turn, "unreachable", failed=True)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Answer a request; conclude an exchange with its reply."""
        assert isinstance(frame, GossipFrame)
        if len(frame.entries) > self.most_entries:
            turn.trace("reject", peer=peer, kind=frame.kind, reason="too_many_entries")
        elif isinstance(frame, self.request):
            turn.send(peer, self.reply(self.answer(turn, frame.entries)))
        elif peer == self.partner and self._asked:
            self.conclude(turn, frame.entries)
            self._end(turn, "exchanged", failed=False)
        else:
            turn.trace("reject", peer=peer, kind=frame.kind, reason="unasked")
