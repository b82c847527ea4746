"""The common part of overlays with T-Man: rounds, exchanges, ages and links. Subclasses choose the neighbours."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from peer.core.bitset import Bitset, members, sample
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.frames import Frame
from peer.core.links import PASSING
from peer.core.membership.interface import Membership
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.tman.frames import Contact, Exchange, Profile, TManRelease, TManReply, TManRequest
from peer.protocols.tman.parameters import TManParameters
from peer.protocols.tman.rendezvous import HANDOVER_ROUNDS
from peer.protocols.tman.shared_sets import PerSet
from peer.trace import LEFT

ROUND = "overlay/round"
RELEASED, SILENT, LOST = "released", "silent", "lost"
GONE = (LEFT, "unreachable", ConnectionResetError.__name__)
"""Reasons for the end of a link after which the neighbour is not up, or cannot be reached."""

SAMPLES = 20
"""Most random nodes that one side adds to an exchange."""

MOST_LISTED = 1000
"""The largest view from which samples are drawn by a list of its nodes."""

RETIRED_ROUNDS = HANDOVER_ROUNDS + 1
"""Rounds for which a link that neither end needs stays open; the other end may learn of it one round late."""

MOST_CONTACTS = 128
"""Most entries of an exchange. A node with a larger routing table sends a random part of it."""

MOST_TOPICS = 8192
"""Most topics of a node in a profile or an exchange."""

Topics = frozenset[TopicId]
NOTHING: Topics = frozenset()


MOST_EXCHANGED_TOPICS = 1 << 16
"""Most topics of all entries of an exchange, added up, so that its frame has fewer bytes than a frame may have."""

share: PerSet[Topics] = PerSet(lambda topics: topics)
"""Returns one set for all equal sets."""


class TMan(Part):
    """Keeps a routing table by gossip, and a link to each node in it.

    In each round, a node removes silent neighbours, exchanges its table with one neighbour from it, opens links to new
    entries and releases links to nodes that left the table. It sends its profile over all links, whichever side opened
    them. The rounds of a node begin at an instant of its own. A neighbour's age is the number of rounds since its
    latest profile. Exchanges contain ages.

    A link that neither end's table needs is retired: the ends send no more profiles over it, and close it after
    ``RETIRED_ROUNDS``. Until then they send messages over it, so that no message is lost while other links replace it.

    A node whose link failed, or that was silent, is not a candidate for twice the age limit. By then, other nodes have
    removed it, too.

    Args:
        state: the node's state.
        membership: the peer sampling service.
        parameters: the period and the age limit.
        contacts: nodes that this node knows at the start.

    Attributes:
        table: the routing table: each node in it with its topics, as the node or others reported them.
        told: each neighbour that sent a profile, with its topics.
        retired: the neighbours with retired links, each with the round in which its link was retired, and its topics.
        round: the number of the present round.

    Source: Vitis section III-A and III-D, Algorithms 1-3, 6 and 7; Jelasity, Montresor, Babaoglu: T-Man (Computer
    Networks 53(13), 2009).
    """

    frames: ClassVar[tuple[type[Frame], ...]] = (TManRequest, TManReply, TManRelease)
    writes = frozenset({"outbound", "interests", "forwards", "logical"})

    def __init__(
        self, state: State, membership: Membership, parameters: TManParameters, contacts: tuple[NodeId, ...] = ()
    ) -> None:
        super().__init__(state)
        self._contacts = contacts
        self._membership = membership
        self._period_ns = max(round(parameters.period_s * 1e9), 1)
        self._age_limit = parameters.age_limit
        self.draws = substream(state.seed, state.node, "overlay")
        self.table: dict[NodeId, Topics] = {}
        self.told: dict[NodeId, Topics] = {}
        self.retired: dict[NodeId, tuple[int, Topics]] = {}
        self.round = 0
        self._heard: dict[NodeId, int] = {}
        self._opened: dict[NodeId, None] = {}
        self._lost: dict[NodeId, int] = {}
        self._partner: NodeId | None = None
        self._reselects = True
        self._known: Bitset = -1
        self._samples: dict[NodeId, Topics] = {}
        self._sampled: tuple[Contact, ...] = ()
        self._merged: dict[NodeId, Topics] | None = None

    # ----------------------------------------------------------------------------------- decisions of a protocol

    def select(self, pool: Mapping[NodeId, Topics]) -> Iterable[NodeId]:
        """Return the nodes of the new routing table, chosen from all nodes that this node knows (Algorithm 4)."""
        raise NotImplementedError

    def narrow(self, candidates: Mapping[NodeId, Topics]) -> dict[NodeId, Topics]:
        """Return the candidates that ``select`` may choose if they are added to the latest pool."""
        raise NotImplementedError

    def make_profile(self, turn: Turn) -> Frame:
        """Return the frame to send to all neighbours in this round (Algorithm 6, line 2)."""
        raise NotImplementedError

    def introduce(self, turn: Turn) -> Frame:
        """Return the frame to send to a neighbour whose link came up during a round."""
        raise NotImplementedError

    def refresh(self, turn: Turn) -> None:
        """End a round, after the profile was sent."""

    def forget(self, turn: Turn, peer: NodeId) -> None:
        """Forget a neighbour whose link ended."""

    def restore(self) -> None:
        """Make lost nodes candidates again."""

    def retire(self, turn: Turn, peer: NodeId) -> None:
        """Note that a link is retired: it carries only messages now."""

    def resume(self, peer: NodeId) -> None:
        """Note that a retired link is needed again. The neighbour's profile follows."""

    def relink(self, turn: Turn, peer: NodeId) -> None:
        """Update the topics of a link after the topics of the neighbour or of this node changed."""

    # --------------------------------------------------------------------------------------------------- rounds

    def start(self, turn: Turn) -> None:
        """Begin at a random instant within the first period, so that the rounds of all nodes spread over time."""
        turn.set_timer(ROUND, turn.now_ns + 1 + self.draws.randrange(self._period_ns))

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Fill an empty routing table (Algorithm 1, line 3), also with the contacts that are up."""
        if not self.table:
            known = directory.nodes
            self._merge([Contact(node, 0, directory.topics_of(node)) for node in self._contacts if known >> node & 1])
            self._align_links(turn)

    def fire(self, turn: Turn, name: str) -> None:
        turn.set_timer(ROUND, turn.now_ns + self._period_ns)
        self.round += 1
        removed = self._remove_silent()
        self._begin_exchange(turn)
        released = self._align_links(turn)
        profile = self.make_profile(turn)
        idle = {*removed, *released, *(self.retired.keys() - self.table.keys())}
        turn.send_each(tuple([peer for peer in self.state.neighbours if peer not in idle]), profile)
        self.refresh(turn)
        for peer in removed:  # after the last frame to them
            turn.disconnect(peer, SILENT)
        self._close_retired(turn)

    def _remove_silent(self) -> list[NodeId]:
        """Remove the neighbours that sent no profile for too long (Algorithm 6, line 5), and return them."""
        oldest = self.round - self._age_limit
        removed = [peer for peer, heard in self._heard.items() if heard < oldest]
        for peer in removed:
            self._lose(peer)
        if over := [peer for peer, until in self._lost.items() if until <= self.round]:
            for peer in over:
                del self._lost[peer]
            self._merged = None  # the samples may include them
            self.restore()
        return removed

    def _lose(self, peer: NodeId) -> None:
        self._lost[peer] = self.round + 2 * self._age_limit
        for known in (self._opened, self.table, self.told, self.retired, self._heard):
            known.pop(peer, None)
        self._reselects = True

    # ------------------------------------------------------------------------------------------------- exchanges

    def _begin_exchange(self, turn: Turn) -> None:
        """Ask a neighbour from the table, drawn uniformly. If there is none, use the peer sampling service."""
        linked = [peer for peer in self.table if peer in self.state.neighbours]
        if linked:
            self._partner = self.draws.choice(linked)
            turn.send(self._partner, TManRequest(self._describe()))
        else:
            self._partner = None
            self._merge(())

    def _describe(self) -> tuple[Contact, ...]:
        """Return the entries of an exchange: the samples, then the routing table."""
        now, heard = self.round, self._heard
        self._sample()
        table = [*self.table.items()]
        if len(table) > MOST_CONTACTS - SAMPLES:
            table = self.draws.sample(table, MOST_CONTACTS - SAMPLES)
        told = [Contact(node, now - heard.get(node, now), topics) for node, topics in table]
        contacts = (*self._sampled, *told)
        while sum([len(contact.topics) for contact in contacts]) > MOST_EXCHANGED_TOPICS:
            contacts = contacts[len(contacts) // 2 :]
        return contacts

    def _sample(self) -> dict[NodeId, Topics]:
        """Return random nodes with their topics from the peer sampling service."""
        known = self._membership.known
        if known is not self._known or known.bit_count() > SAMPLES:
            self._known = known
            topics_of = self._membership.topics_of
            drawn = [(node, topics_of(node)) for node in self._draw(known) if self.state.may_be_node(node)]
            self._samples = {node: share[topics] for node, topics in drawn if len(topics) <= MOST_TOPICS}
            self._sampled = tuple([Contact(node, 0, topics) for node, topics in self._samples.items()])
        return self._samples

    def _draw(self, known: Bitset) -> Iterable[NodeId]:
        """Draw samples: with a list of the nodes if the view is of medium size, otherwise without one."""
        count = known.bit_count()
        if count <= SAMPLES or count > MOST_LISTED:
            return members(sample(known, SAMPLES, self.draws))
        return self.draws.sample([*members(known)], SAMPLES)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, Exchange):
            self._take_exchange(turn, peer, frame)
        elif isinstance(frame, Profile):
            self.hear(turn, peer, frame.topics)
        elif isinstance(frame, TManRelease) and peer in self.table:
            self._open(turn, peer)
        elif isinstance(frame, TManRelease) and peer not in self.retired:
            self.retired[peer] = self.round, self.told.pop(peer, NOTHING)
            self._heard.pop(peer, None)
            self.retire(turn, peer)
            turn.send(peer, TManRelease())  # the other end retires it, too, unless it needs it again

    def _take_exchange(self, turn: Turn, peer: NodeId, frame: Exchange) -> None:
        """Answer a request with the present table, then merge it (Algorithm 3); merge a reply (Algorithm 2)."""
        reason = self._fault(frame.contacts)
        if reason is None and isinstance(frame, TManReply) and peer != self._partner:
            reason = "unasked"
        if reason is not None:
            turn.trace("reject", peer=peer, kind=frame.kind, reason=reason)
            return
        if isinstance(frame, TManRequest):
            turn.send(peer, TManReply(self._describe()))
        else:
            self._partner = None
        self._merge(frame.contacts)

    def _fault(self, contacts: tuple[Contact, ...]) -> str | None:
        if len(contacts) > MOST_CONTACTS:
            return "too_many_contacts"
        if max([contact.node for contact in contacts], default=0) >= self.state.numbers:
            return "unknown_node"
        if max([len(contact.topics) for contact in contacts], default=0) > MOST_TOPICS:
            return "too_many_topics"
        return None

    def _merge(self, contacts: Iterable[Contact]) -> None:
        """Select the new routing table from the old one, all neighbours, random nodes and received contacts.

        It selects nothing if it would choose no node outside the latest pool.
        """
        age_limit = self._age_limit
        recent = [(contact.node, contact.topics) for contact in contacts if contact.age < age_limit]
        fresh = self.narrow(self.find_strangers(recent))
        samples = self._sample()
        if samples is not self._merged or self._reselects:
            self._merged = samples
            fresh |= self.narrow(self.find_strangers(samples.items()))
        if fresh or self._reselects:
            self._reselects = False
            ages = {contact.node: contact.age for contact in contacts if contact.node in fresh}
            self.adopt({**self.table, **self.told, **fresh}, ages)

    def find_strangers(self, nodes: Iterable[tuple[NodeId, Topics]]) -> dict[NodeId, Topics]:
        """Return the candidates among these nodes that are not in the pool yet, with their topics."""
        table, told, lost, own = self.table, self.told, self._lost, self.state.node
        return {
            node: topics
            for node, topics in nodes
            if node not in table and node not in told and node not in lost and node != own
        }

    def adopt(self, pool: Mapping[NodeId, Topics], ages: Mapping[NodeId, int]) -> None:
        """Replace the routing table by a selection from the pool. Entries without an age are new."""
        table, heard, now = self.table, self._heard, self.round
        self.table = {node: share[pool[node]] for node in self.select(pool)}
        for node in self.table:
            if node not in heard:
                heard[node] = now - ages.get(node, 0)
        for node in table:
            if node not in self.table and node not in self.told:
                heard.pop(node, None)

    # ----------------------------------------------------------------------------------------------------- links

    def hear(self, turn: Turn, peer: NodeId, topics: Topics) -> None:
        """Note that a neighbour's profile arrived (Algorithm 7).

        Args:
            turn: the present turn.
            peer: the neighbour.
            topics: the topics in its profile.
        """
        self._heard[peer] = self.round
        if peer in self.retired:
            del self.retired[peer]
            self.resume(peer)
        if self.told.get(peer) is topics:
            return
        if len(topics) > MOST_TOPICS:
            turn.trace("reject", peer=peer, kind=Profile.kind, reason="too_many_topics")
            return
        topics = share[topics]
        if self.told.get(peer) is not topics:
            self.told[peer] = topics
            if peer in self.table:
                self.table[peer] = topics
            self._reselects = True
            self.relink(turn, peer)

    def _close_retired(self, turn: Turn) -> None:
        for peer, (since, _) in self.retired.items():
            if self.round - since >= RETIRED_ROUNDS and peer not in self.table:
                turn.disconnect(peer, RELEASED)

    def _open(self, turn: Turn, peer: NodeId) -> None:
        """Open the link to a node of the table, or keep it. If it is retired, profiles of both ends resume it."""
        if peer not in self._opened:
            self._opened[peer] = None
            turn.connect(peer)
            if peer in self.state.neighbours:
                self.write(peer, outbound=True)

    def _align_links(self, turn: Turn) -> list[NodeId]:
        """Open links to the table's nodes. Release the other links that this node opened, and return their nodes."""
        neighbours, table = self.state.neighbours, self.table
        for peer in table:
            self._open(turn, peer)
        released = [peer for peer in self._opened if peer not in table]
        for peer in released:
            del self._opened[peer]
            if peer in neighbours:
                self.write(peer, outbound=False)
                turn.send(peer, TManRelease())
            else:
                turn.disconnect(peer, RELEASED)
        return released

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        self._heard.setdefault(peer, self.round)
        if self.state.neighbours[peer].outbound != (peer in self._opened):
            self.write(peer, outbound=peer in self._opened)
        turn.send(peer, self.introduce(turn))

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Remove a neighbour whose link broke, that left, or that cannot be reached.

        A neighbour that closed the link for another reason is up. It may not have known that this node needs the link,
        for example if it had only borrowed the link. If the table has the neighbour, this node redials in the next
        round.
        """
        self.told.pop(peer, None)
        self.retired.pop(peer, None)
        self.forget(turn, peer)
        if reason in GONE or (peer in self._opened and retrying and reason not in PASSING):
            self._lose(peer)
            turn.disconnect(peer, LOST)
        elif peer not in self._opened:
            self._heard.pop(peer, None)
            if retrying:
                turn.disconnect(peer, RELEASED)
        elif not retrying:
            del self._opened[peer]
            if peer not in self.table:
                self._heard.pop(peer, None)
