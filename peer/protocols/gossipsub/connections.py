"""Ambient discovery: the connections from which meshes take their links."""

from collections.abc import Iterable

from peer.core.bitset import bitset, choose
from peer.core.contract import NodeId, TopicId
from peer.core.membership.interface import Membership
from peer.core.outgoing import OutgoingLinks
from peer.core.parts import State, Turn
from peer.core.randomness import substream


class Connections:
    """Links to nodes drawn uniformly, and more that meshes need or that peers name. The node closes none of them.

    The specification leaves discovery to the environment. The node accepts nodes that a peer names (peer exchange) if
    the membership knows them, since there are no signed peer records.

    Attributes:
        ambient: the links to nodes drawn uniformly.

    Source: gossipsub v1.0, Ambient Peer Discovery; v1.1, PRUNE Backoff and Peer Exchange.
    """

    def __init__(self, state: State, membership: Membership, connections: int) -> None:
        self._state = state
        self._membership = membership
        self.ambient = OutgoingLinks(state, membership, connections)
        self._draws = substream(state.seed, state.node, "gossipsub/discovery")
        self._asked: dict[NodeId, None] = {}

    def link_down(self, turn: Turn, peer: NodeId, retrying: bool) -> None:
        """Handle the end of a link, or of the attempts to open one.

        Args:
            turn: the present turn.
            peer: the node at the other end.
            retrying: whether the driver redials.
        """
        if not retrying:
            self._asked.pop(peer, None)
        self.ambient.link_down(turn, peer, retrying)

    def seek(self, turn: Turn, topic: TopicId, wanted: int) -> None:
        """Open links to known subscribers of a topic until ``wanted`` of them have a link or an attempt at one.

        Args:
            turn: the present turn.
            topic: the topic.
            wanted: the number of subscribers.
        """
        subscribers = self._membership.subscribers(topic)
        linked = bitset(self._state.neighbours) | bitset(self._asked)
        fresh = subscribers & ~linked & ~(1 << self._state.node)
        for _ in range(min(wanted - (subscribers & linked).bit_count(), fresh.bit_count())):
            peer = choose(fresh, self._draws)
            fresh &= ~(1 << peer)
            self._ask(turn, peer)

    def follow(self, turn: Turn, named: tuple[NodeId, ...], limit: int) -> None:
        """Connect to at most ``limit`` of the nodes that a peer named.

        Args:
            turn: the present turn.
            named: the nodes.
            limit: the largest number.
        """
        fresh = [
            peer
            for peer in dict.fromkeys(named)
            if peer not in self._state.neighbours and self._membership.known >> peer & 1
        ]
        for peer in self._draws.sample(fresh, min(limit, len(fresh))):
            self._ask(turn, peer)

    def keep(self, turn: Turn, peers: Iterable[NodeId]) -> None:
        """Connect to the peers without a link."""
        for peer in peers:
            if peer not in self._state.neighbours and self._membership.known >> peer & 1:
                self._ask(turn, peer)

    def _ask(self, turn: Turn, peer: NodeId) -> None:
        self._asked[peer] = None
        turn.connect(peer)
