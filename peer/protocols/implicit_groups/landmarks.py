"""Prefixes of addresses from the network: nodes that are near each other get addresses near each other."""

from collections.abc import Iterator, Sequence
from math import factorial, inf
from typing import ClassVar

from peer.core.bitset import members
from peer.core.contract import NodeId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.implicit_groups.frames import GroupPing
from peer.protocols.implicit_groups.neighbours import SECOND_NS, UNUSED
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters
from peer.protocols.implicit_groups.reshuffling import ReshufflingOverlay

MEASURE = "overlay/measure"


def prefix_of(round_trips_ns: Sequence[int | None], bits: int) -> int:
    """Return the prefix of a node's address, from its round-trip times to the landmarks.

    The landmarks are ordered from the nearest to the farthest; landmarks without an answer come last. All possible
    orders are numbered lexicographically, and the numbers are scaled to 0 .. 2**bits - 1. So nodes with the same
    nearest landmark have adjacent prefixes. Of these, nodes with the same second nearest landmark are adjacent, and so
    on.

    Source: Ratnasamy et al., A Scalable Content-Addressable Network (SIGCOMM 2001), section 3.7, which divides its
    space by the same orders. The prefix is ours: the paper names no method.

    Args:
        round_trips_ns: the round-trip time to each landmark (ns); None = unknown.
        bits: the length of the prefix.
    """
    times = [inf if time is None else time for time in round_trips_ns]
    order = sorted(range(len(times)), key=lambda mark: (times[mark], mark))
    rank = 0
    for place, mark in enumerate(order):
        rank += sum(later < mark for later in order[place + 1 :]) * factorial(len(order) - 1 - place)
    return (rank << bits) // factorial(len(order))


class PrefixedOverlay(ReshufflingOverlay):
    """Measures the round-trip times to the landmarks before it joins. Their order becomes the prefix of its address.

    The landmarks are the nodes with the lowest numbers. A node knows them from the bootstrap service, like other nodes.
    A landmark that is unknown or does not answer within ``join_timeout_s`` counts as the farthest. A node that the plan
    has placed begins with the prefix that it would have measured. A node keeps its prefix as long as it is up.

    Source: section 5.1, which says that bits before the address may place nodes "with some approximation to the
    underlying network". The method to find them is ours.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = (*ReshufflingOverlay.frames, GroupPing)

    def __init__(self, state: State, membership: Membership, parameters: PlacedImplicitGroupsParameters) -> None:
        super().__init__(state, membership, parameters)
        self._is_measuring = False
        self._pinged: dict[NodeId, int] = {}
        self._unanswered: dict[NodeId, None] = {}
        self._round_trips_ns: dict[NodeId, int] = {}

    def start(self, turn: Turn) -> None:
        p = self._p
        if not p.prefix_bits or (p.first_seed == self.state.seed and p.linked):
            super().start(turn)
        else:
            self._is_measuring = True
            turn.set_timer(MEASURE, turn.now_ns + 1)

    def fire(self, turn: Turn, name: str) -> None:
        if name != MEASURE:
            super().fire(turn, name)
        elif not self._unanswered:
            self._measure(turn)
        else:
            self._begin(turn)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        super().link_up(turn, peer)
        if peer in self._unanswered and peer not in self._pinged:
            self._ping(turn, peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Ask a landmark over another link if it closed the link as unused. Give up one that cannot be reached."""
        self._pinged.pop(peer, None)
        super().link_down(turn, peer, reason, retrying)
        if peer in self._unanswered and reason == UNUSED:
            turn.connect(peer)
        elif not retrying:
            self._end(turn, peer)

    def _take(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if not isinstance(frame, GroupPing):
            super()._take(turn, peer, frame)
        elif not frame.is_answer:
            turn.send(peer, GroupPing(True))
        elif peer in self._pinged:
            self._round_trips_ns[peer] = turn.now_ns - self._pinged.pop(peer)
            self._end(turn, peer)

    def _needed(self) -> Iterator[NodeId | None]:
        yield from super()._needed()
        yield from self._unanswered

    def _seek(self, turn: Turn) -> None:
        if not self._is_measuring:
            super()._seek(turn)

    # --------------------------------------------------------------------------------------------- measuring

    def _measure(self, turn: Turn) -> None:
        marks = range(self._p.landmarks)
        self._unanswered = dict.fromkeys(node for node in members(self._membership.known) if node in marks)
        if not self._unanswered:
            self._begin(turn)
            return
        for mark in self._unanswered:
            if mark in self.state.neighbours:
                self._ping(turn, mark)
            else:
                turn.connect(mark)
        turn.set_timer(MEASURE, turn.now_ns + round(self._p.join_timeout_s * SECOND_NS))

    def _ping(self, turn: Turn, mark: NodeId) -> None:
        self._pinged[mark] = turn.now_ns
        turn.send(mark, GroupPing(False))

    def _end(self, turn: Turn, mark: NodeId) -> None:
        """End the measurement of a landmark that answered or cannot be reached. Join after the last one."""
        if mark in self._unanswered:
            del self._unanswered[mark]
            self._close_unused(turn, mark)
            if not self._unanswered:
                self._begin(turn)

    def _begin(self, turn: Turn) -> None:
        """Join at the address with the measured prefix."""
        if not self._is_measuring:
            return
        self._is_measuring = False
        turn.cancel_timer(MEASURE)
        unanswered, self._unanswered = self._unanswered, {}
        self._pinged.clear()
        for mark in unanswered:
            self._close_unused(turn, mark)
        times = [0 if mark == self.state.node else self._round_trips_ns.get(mark) for mark in range(self._p.landmarks)]
        self._prefix = prefix_of(times, self._p.prefix_bits)
        self.address = self._make_address()
        self.surface.own = self._space.extent(self.address)
        super().start(turn)
