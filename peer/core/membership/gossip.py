"""Gossip between pairs of nodes: what Cyclon and Newscast have in common.

Every period a node tells one node of its view of some others and gets some in return. The two protocols differ in whom
they ask, what they tell, and whom they keep.
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
"""A larger number is no node's: a view's bitset stays below 128 KiB whatever others claim."""


class Descriptor(Struct, frozen=True, array_like=True, gc=False):
    """What is told of a node: how old the news is, on the protocol's clock, and its interest where it is disclosed."""

    node: Annotated[int, Meta(ge=0, lt=HIGHEST_NODE)]
    age: Annotated[int, Meta(ge=0, lt=2**53)]
    topics: tuple[Annotated[int, Meta(ge=0, lt=2**32)], ...] | None = None


class GossipFrame(Frame, frozen=True):
    """One direction of an exchange."""

    entries: tuple[Descriptor, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return ((entry.node, entry.topics or ()) for entry in self.entries)


class Entry(NamedTuple):
    """A node of a view. ``since``: the instant of the news on this node's clock, which falls with the news' age."""

    since: int
    topics: tuple[TopicId, ...] | None


class GossipParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The parameters of every gossip membership."""

    period_s: Annotated[float, Meta(gt=0, le=604_800)] = 5.0
    """Time between two exchanges that a node begins. An exchange that lasts until the next one has failed."""
    contacts: Annotated[int, Meta(ge=1)] = 5
    """Nodes that the bootstrap service gives to a node that knows no others, drawn uniformly."""


class GossipMembership(Part):
    """A view that changes by exchanges over links borrowed for them.

    An exchange uses the link that there is to the partner, or borrows one for as long as it takes; the part that
    answers never opens or closes any. Where the other side, unknowing, closes the link that an exchange uses, the
    exchange begins again over a link of this node's own.

    The bootstrap service is asked only by a node whose view is empty. Entries carry interests where that service
    discloses them, and are otherwise mute about them.

    Subclasses say what ``clock`` ages go by and which partner, entries and merge they want.

    Attributes:
        partner: the node with which an exchange of this node's own is under way; None = no exchange.
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

    # ------------------------------------------------------------------------------------ what a protocol decides

    def clock(self, turn: Turn) -> int:
        """The present, in units of age."""
        raise NotImplementedError

    def next_partner(self, turn: Turn) -> NodeId:
        """Whom to begin an exchange with; the view is not empty."""
        raise NotImplementedError

    def offer(self, turn: Turn) -> tuple[Descriptor, ...]:
        """What to tell the partner of an exchange that begins."""
        raise NotImplementedError

    def answer(self, turn: Turn, entries: tuple[Descriptor, ...]) -> tuple[Descriptor, ...]:
        """Take what a node tells, and say what to tell it in return."""
        raise NotImplementedError

    def conclude(self, turn: Turn, entries: tuple[Descriptor, ...]) -> None:
        """Take what the partner told in return."""
        raise NotImplementedError

    def fail(self, turn: Turn, partner: NodeId) -> None:
        """The exchange came to nothing."""

    @property
    def most_entries(self) -> int:
        """The length of the longest offer or answer."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ what an overlay asks

    @property
    def known(self) -> Bitset:
        """See ``Membership``: the view."""
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
        """What to tell of this node: news."""
        disclosed = self._directory.discloses(self.state.node)
        return Descriptor(self.state.node, 0, tuple(sorted(self.state.topics)) if disclosed else None)

    def changed(self) -> None:
        self._known = self._subscribers = None

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Keep the answer for the case that nobody else is known."""
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
        """Begin at an instant of one's own within the first period, so that exchanges spread over time."""
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
        """Ask the partner as soon as there is a link to it."""
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
        """Begin again, once, where the link was there and closed under the exchange; else the exchange has failed."""
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
