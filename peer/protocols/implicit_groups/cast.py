"""CAST: sends a message to all nodes whose addresses match a target."""

from collections.abc import Iterable, Mapping
from math import pi
from typing import Any

from msgspec.structs import replace

from peer.core.addressing.expression import ExpressionError, parse
from peer.core.addressing.keywords import keyword
from peer.core.contract import Message, NodeId, Publish
from peer.core.dissemination.spread import MOST_HOPS, Spreading
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.implicit_groups.addressing.clustering import cluster
from peer.protocols.implicit_groups.addressing.extent import Extent
from peer.protocols.implicit_groups.addressing.geometry import centre
from peer.protocols.implicit_groups.addressing.region import Region
from peer.protocols.implicit_groups.addressing.target import Target
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
from peer.protocols.implicit_groups.landmarks import PrefixedOverlay
from peer.protocols.implicit_groups.parameters import PlacedImplicitGroupsParameters

MOST_WAITING = 64
"""Most own copies that wait until the node has joined."""

MOST_UNEXPLORED = 256
"""Most extents that a copy must reach, unless ``expansion_limit`` is larger. Clustering costs up to its cube."""
MOST_BRANCHES = 256
"""Most copies that a node adds to a message or request by branches. Then it makes no more branches."""

MOST_COUNTED = 4096
"""Number of latest messages and requests for which a node counts branches."""

Copy = Data | GroupAsk
"""The frames that a CAST sends across the surface."""


def one_hop_on(copy: Data, routing: bytes) -> Data:
    """Return the copy that a node sends after it received this one."""
    hops = min(copy.hops + 1, MOST_HOPS)
    return Data(copy.message_id, copy.topics, hops, UNLIMITED_TTL, copy.payload, routing)


class Cast(PrefixedOverlay, Spreading):
    """Delivers messages whose target matches the node's address, and forwards them to unexplored extents.

    Copies of a message may cross a node several times, each on its way to other extents. The node delivers the first
    copy and forwards all of them. A copy contains the target, not the expression. So a node cannot distinguish a false
    positive of the Bloom filter from a message that is for it.

    Attributes:
        branched: the latest messages and requests that branched at this node, each with the number of added copies.

    Source: sections 2.5 and 3.4, Algorithm 3.
    """

    frames = (*PrefixedOverlay.frames, *Spreading.frames)

    @staticmethod
    def copies_may_wait(parameters: Mapping[str, Any]) -> bool:
        """Return True: a node that has not joined the surface yet keeps its messages until then."""
        return True

    def __init__(self, state: State, membership: Membership, parameters: PlacedImplicitGroupsParameters) -> None:
        PrefixedOverlay.__init__(self, state, membership, parameters)
        Spreading.__init__(self, state, parameters.seen_messages)
        self._waiting: list[tuple[Data, Way]] = []
        self.branched: dict[tuple[int, int], int] = {}
        self._most_unexplored = max(MOST_UNEXPLORED, parameters.expansion_limit)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, Data):
            Spreading.receive(self, turn, peer, frame)
        else:
            PrefixedOverlay.receive(self, turn, peer, frame)

    def publish(self, turn: Turn, publication: Publish) -> None:
        """Send a message to the extents of its expression's target. A node that has not joined yet waits."""
        identifier, topics, payload = publication.message_id, publication.topics, publication.payload
        turn.trace("publish", message_id=identifier, topics=topics, len_bytes=len(payload))
        if identifier in self.seen:
            return
        self.remember(identifier, topics)
        text = publication.expression or "|".join(keyword(topic) for topic in topics)
        try:
            target = Target.of(parse(text), self.scheme, self._space.dimensions, self._p.prefix_bits)
        except ExpressionError:
            turn.trace("reject", message_id=identifier, topics=topics, reason="bad_expression")
            return
        if target.matches(self.address):
            turn.deliver(Message(identifier, topics, payload, 0))
            turn.trace("deliver", message_id=identifier, topics=topics, hops=0)
        everything = frozenset({Extent(self._space.dimensions)})
        copy = Data(identifier, topics, 0, UNLIMITED_TTL, payload)
        for index, phi in enumerate(self._p.parallel_branch_factors or (self._p.branch_factor,)):
            way = Way(elements_of(target), pack_all(everything), phi, 0)
            if self.is_member:
                self._pass_on(turn, None, copy, way, target, everything, is_new=index == 0)
            elif len(self._waiting) < MOST_WAITING:
                self._waiting.append((copy, way))

    def _become_member(self, turn: Turn, extents: Region, entries: Mapping[NodeId, Region]) -> None:
        super()._become_member(turn, extents, entries)
        waiting, self._waiting = self._waiting, []
        for copy, way in waiting:
            target = target_of(way.elements, self._space)
            self._pass_on(turn, None, copy, way, target, unpack_all(way.unexplored, self._space), is_new=False)

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        """Deliver the first copy if the target matches, and forward every copy that has extents left to reach."""
        try:
            way = decode_way(copy.routing)
            target = target_of(way.elements, self._space)
            unexplored = unpack_all(way.unexplored, self._space)
            self._check_way(way, target)
        except ValueError:
            turn.trace("reject", peer=peer, message_id=copy.message_id, topics=copy.topics, reason="bad_cast")
            return
        is_new = copy.message_id not in self.seen
        matches = target.matches(self.address)
        if not is_new:
            turn.trace_copy("duplicate", peer, copy)
        elif matches:
            turn.deliver(Message(copy.message_id, copy.topics, copy.payload, copy.hops))
            turn.trace_copy("deliver", peer, copy)
        else:
            turn.trace_copy("relay", peer, copy)
        self.remember(copy.message_id, copy.topics)
        if way.hops >= self._p.hop_limit:
            self._drop(turn, copy, "hop_limit")
        else:
            self._pass_on(turn, peer, copy, way, target, unexplored, is_new=is_new)

    def _check_way(self, way: Way, target: Target) -> None:
        """Check for what no honest node sends.

        Every keyword sets ``hashes`` bits of the filter. An element with fewer bits matches nearly all nodes.

        Raises:
            ValueError: there are too many visited nodes or unexplored extents, or a target element without a keyword.
        """
        if len(way.unexplored) > self._most_unexplored:
            raise ValueError(f"{len(way.unexplored)} unexplored extents")
        if len(way.visited) > self._p.hop_limit:
            raise ValueError(f"{len(way.visited)} visited nodes")
        of_filter = (1 << self.scheme.bits) - 1
        if any((element & of_filter).bit_count() < self._p.hashes for element in target.elements):
            raise ValueError("a target element without a keyword")

    def _pass_on(
        self,
        turn: Turn,
        source: NodeId | None,
        copy: Copy,
        way: Way,
        target: Target,
        unexplored: Region,
        *,
        is_new: bool = True,
    ) -> None:
        """Forward a copy to the extents that it has not reached. A copy without such extents is for this node only.

        Args:
            turn: the present turn.
            source: the neighbour that sent it; None = this node.
            copy: the message or request.
            way: its routing information.
            target: its target.
            unexplored: the extents that it has not reached.
            is_new: whether this node has not forwarded it to its cohabitants yet.
        """
        if not unexplored:
            return
        if self.host is not None:
            if source != self.host:
                self._send(turn, self.host, copy, way, unexplored, way.visited)
            return
        if is_new and self.cohabitants and target.matches(self.address):
            for cohabitant in self.cohabitants:
                if cohabitant != source:
                    self._send(turn, cohabitant, copy, way, (), ())
        left = target.expand(self.surface.without_own(unexplored), self._p.expansion_limit).extents
        if not left:
            return
        for branch in self._branches(copy, left, way.branch_factor):
            hop = self.surface.next_hop(branch, way.visited)
            if hop is None:
                self._drop(turn, copy, "no_way")
                continue
            node, is_detour = hop
            visited = (*way.visited, self.state.node) if is_detour or way.visited else ()
            self._send(turn, node, copy, way, branch, visited)

    def _branches(self, copy: Copy, unexplored: Region, phi: float) -> Iterable[Iterable[Extent]]:
        """Divide unexplored extents into branches by direction.

        From phi = pi on, there is one branch, or more if a copy cannot contain so many extents. Every node on the way
        divides the extents again. With a low phi and a general target, the number of copies grows exponentially with
        the length of the ways, so the number of branches is limited.

        Args:
            copy: the message or request.
            unexplored: the extents.
            phi: the branch factor in radians.
        """
        ordered, size = sorted(unexplored), self._most_unexplored
        parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        key = (copy.message_id, -1) if isinstance(copy, Data) else (copy.node, copy.number)
        before = self.branched.get(key, 0)
        if phi >= pi or before >= MOST_BRANCHES:
            return parts
        branches = [branch for part in parts for branch in cluster(centre(self.surface.own), part, phi)]
        if len(branches) > 1:
            if key not in self.branched and len(self.branched) == MOST_COUNTED:
                del self.branched[next(iter(self.branched))]
            self.branched[key] = before + len(branches) - 1
        return branches

    def _send(
        self, turn: Turn, peer: NodeId, copy: Copy, way: Way, unexplored: Iterable[Extent], visited: tuple[NodeId, ...]
    ) -> None:
        routing = encode_way(Way(way.elements, pack_all(unexplored), way.branch_factor, way.hops + 1, visited))
        if isinstance(copy, Data):
            self._pass(turn, peer, one_hop_on(copy, routing))
        else:
            self._pass(turn, peer, replace(copy, routing=routing))

    def _drop(self, turn: Turn, copy: Copy, reason: str) -> None:
        if isinstance(copy, Data):
            turn.trace("reject", message_id=copy.message_id, topics=copy.topics, reason=reason)
        else:
            turn.trace("reject", kind=copy.kind, reason=reason)

    def _route_again(self, turn: Turn, frame: Frame) -> None:
        if isinstance(frame, Copy):
            way = decode_way(frame.routing)
            target, unexplored = target_of(way.elements, self._space), unpack_all(way.unexplored, self._space)
            self._pass_on(turn, None, frame, way, target, unexplored, is_new=False)
        else:
            super()._route_again(turn, frame)
