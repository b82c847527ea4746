"""Replay: copies of the latest messages for nodes that join later, the fifth property in Figure 1."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec.structs import replace

from peer.core.addressing.expression import MAX_TERMS
from peer.core.addressing.keywords import keywords
from peer.core.contract import MessageId, NodeId, publisher_of
from peer.core.copies import Copies
from peer.core.frames import Data, Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.implicit_groups.addressing.bloom import Address
from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.addressing.region import Region
from peer.protocols.implicit_groups.addressing.target import Target
from peer.protocols.implicit_groups.cast import Cast, one_hop_on
from peer.protocols.implicit_groups.encoding import (
    Way,
    decode_way,
    elements_of,
    encode_way,
    pack_all,
    target_of,
    unpack_all,
)
from peer.protocols.implicit_groups.frames import GroupAsk
from peer.protocols.implicit_groups.neighbours import SECOND_NS
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters

MOST_KEPT = 256
"""Number of latest messages that a node keeps."""

MOST_ANSWERED = 64
"""Most copies that a request can cause on each of its ways."""

MOST_ASKED = 1024
"""Number of latest requests that a node remembers."""

MOST_LENT = 64
"""Most nodes to which a node has a link at the same time only to send them copies."""

ANSWER_INTERVAL_NS = 10 * SECOND_NS
MOST_SERVED = 64
"""Most other nodes to which a node sends copies in an interval. It answers only one request of each."""


class ReplayingCast(Cast):
    """Keeps messages for some time, and sends copies to nodes that have just joined.

    A node that has joined sends a request by CAST to all nodes with one of its keywords: the target has one element per
    keyword. A node that keeps messages for the newcomer's address opens a link to the newcomer, sends copies, and
    closes the link.

    All members of a group keep the same messages. The request names the messages of which nodes on its way have sent
    copies, so that not all members send them (ours). The branches of a request do not know of each other, so a newcomer
    gets each message at most once per branch.

    A request is not authenticated: it may name a node that did not send it. The cost of that is bounded. A node sends
    another node at most ``MOST_ANSWERED`` copies per interval, and serves at most ``MOST_SERVED`` nodes in it.

    The request does not reach members without any of the newcomer's keywords. So for an expression with several terms,
    the newcomer may get no copy. A copy has crossed one link more than the copy that was kept. It has no extents left
    to reach.

    Attributes:
        kept: the latest messages, each with the instant of its first copy (ns) and that copy, in the order of instants.
        lent: the newcomers with a link that this node opens only to send them copies.

    Source: section 5.1.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = (*Cast.frames, GroupAsk)

    def __init__(self, state: State, membership: Membership, parameters: PlacedImplicitGroupsParameters) -> None:
        super().__init__(state, membership, parameters)
        self._replay_ns = round(parameters.replay_s * SECOND_NS)
        self.kept: Copies[MessageId, tuple[int, Data]] = Copies(MOST_KEPT)
        self._asked: dict[tuple[NodeId, int], None] = {}
        self.lent: dict[NodeId, None] = {}
        self._served: dict[NodeId, int] = {}
        self._is_newcomer = True

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        is_known = copy.message_id in self.seen
        super().receive_copy(turn, peer, copy)
        if self._replay_ns and not is_known and copy.message_id in self.seen:
            self._forget_old(turn)
            self.kept.put(copy.message_id, (turn.now_ns, copy), len(copy.payload))

    def _forget_old(self, turn: Turn) -> None:
        for identifier, (since_ns, _) in list(self.kept.items()):
            if turn.now_ns - since_ns <= self._replay_ns:
                break
            self.kept.forget(identifier)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        super().link_up(turn, peer)
        if peer in self.lent:
            del self.lent[peer]
            self._close_unused(turn, peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Give up a newcomer that cannot be reached at once."""
        if peer in self.lent:
            del self.lent[peer]
            if retrying:
                turn.disconnect(peer, "lost")
                retrying = False
        super().link_down(turn, peer, reason, retrying)

    # ------------------------------------------------------------------------------------------ the newcomer

    def _become_member(self, turn: Turn, extents: Region, entries: Mapping[NodeId, Region]) -> None:
        """Become a member, and ask for copies if this node has just joined.

        ``is_member`` does not show that: a cohabitant has its host already when this is called.
        """
        super()._become_member(turn, extents, entries)
        if self._is_newcomer:
            self._is_newcomer = False
            if self._replay_ns:
                self._ask_for_copies(turn)

    def _place(self, turn: Turn, extents: Region) -> None:
        self._is_newcomer = False
        super()._place(turn, extents)

    def _forget_all(self) -> None:
        super()._forget_all()
        self._is_newcomer = True

    def _ask_for_copies(self, turn: Turn) -> None:
        words = sorted(keywords(self.state.topics))[:MAX_TERMS]
        if not words:
            return
        target = Target(self._space, frozenset(self.scheme.address((word,)) for word in words))
        everything = frozenset({Extent(self._space.dimensions)})
        way = Way(elements_of(target), pack_all(everything), self._p.branch_factor, 0)
        request = GroupAsk(self.state.node, self._draws.getrandbits(32), self._own_address(), ())
        self._asked[request.node, request.number] = None
        self._pass_on(turn, None, request, way, target, everything)

    # ------------------------------------------------------------------------------------------ the members

    def _take(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, GroupAsk):
            self._take_request(turn, peer, frame)
        else:
            super()._take(turn, peer, frame)

    def _take_request(self, turn: Turn, peer: NodeId, request: GroupAsk) -> None:
        way = decode_way(request.routing)
        target, unexplored = target_of(way.elements, self._space), unpack_all(way.unexplored, self._space)
        self._check_way(way, target)
        address = int.from_bytes(request.address, "big")
        self._space.extent(address)
        if request.node == self.state.node or not self.state.may_be_node(request.node):
            turn.trace("reject", peer=peer, kind=request.kind, reason="bad_node")
            return
        if len(request.answered) > MOST_ANSWERED:
            turn.trace("reject", peer=peer, kind=request.kind, reason="too_many_answers")
            return
        is_new = (request.node, request.number) not in self._asked
        if is_new:
            if len(self._asked) == MOST_ASKED:
                del self._asked[next(iter(self._asked))]
            self._asked[request.node, request.number] = None
            if target.matches(self.address):
                request = self._answer(turn, request, address)
        if way.hops >= self._p.hop_limit:
            self._drop(turn, request, "hop_limit")
        else:
            self._pass_on(turn, peer, request, way, target, unexplored, is_new=is_new)

    def _answer(self, turn: Turn, request: GroupAsk, address: Address) -> GroupAsk:
        """Send the newcomer the copies that it lacks, latest first. Return the request, which names them.

        Args:
            turn: the present turn.
            request: the request.
            address: the newcomer's address.
        """
        newcomer = request.node
        if newcomer not in self.state.neighbours and len(self.lent) == MOST_LENT:
            return request
        sent = list(self._find_copies(turn, request, address))
        if not sent:
            return request
        served = {node: at for node, at in self._served.items() if turn.now_ns - at < ANSWER_INTERVAL_NS}
        if newcomer in served or len(served) == MOST_SERVED:
            self._drop(turn, request, "too_many_requests")
            return request
        self._served = served | {newcomer: turn.now_ns}
        for copy, way in sent:
            self._pass(turn, newcomer, one_hop_on(copy, encode_way(replace(way, unexplored=(), visited=()))))
        if newcomer not in self.state.neighbours:
            self.lent[newcomer] = None
            turn.connect(newcomer)
        return replace(request, answered=(*request.answered, *(copy.message_id for copy, _ in sent)))

    def _find_copies(self, turn: Turn, request: GroupAsk, address: Address) -> Iterator[tuple[Data, Way]]:
        """Yield the kept copies for an address that the newcomer lacks, each with its way, latest first.

        Args:
            turn: the present turn.
            request: the newcomer's request.
            address: its address.
        """
        self._forget_old(turn)
        left = MOST_ANSWERED - len(request.answered)
        for identifier, (_, copy) in reversed(self.kept):
            if not left:
                return
            way = decode_way(copy.routing)
            is_wanted = identifier not in request.answered and publisher_of(identifier) != request.node
            if is_wanted and target_of(way.elements, self._space).matches(address):
                yield copy, way
                left -= 1
