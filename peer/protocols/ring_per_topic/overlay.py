"""One ring per topic, ordered by node number. Rings share links."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from peer.core.bitset import Bitset, bitset, lowest
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.ring_per_topic.frames import RingLink, RingRefusal
from peer.protocols.ring_per_topic.observed_links import RingTopics

REFRESH = "overlay/refresh"
UNNEEDED = "unneeded"
SECOND_NS = 1_000_000_000


class RingPerTopicParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """One ring per topic."""

    refresh_s: Annotated[float, Meta(ge=0.001, le=604_800)] = 5.0
    """Time between two checks of the membership, and for which a node that could not be reached is skipped."""


class RingPerTopic(Part):
    """Keeps a logical link to its successor, the next higher subscriber, in the ring of each of its topics.

    The lowest subscriber is the successor of the highest. A node gives up a successor only after the link to the next
    one is up. The node that first notices that neither side needs a link closes it. A node that needs it again redials.

    Source: SpiderCast section 3.9.2 (RingPT). The maintenance of the rings is ours.
    """

    Parameters = RingPerTopicParameters
    frames = (RingLink, RingRefusal)
    writes = frozenset({"forwards", "logical"})

    def __init__(self, state: State, membership: Membership, parameters: RingPerTopicParameters) -> None:
        super().__init__(state)
        self._membership = membership
        self._draws = substream(state.seed, state.node, "overlay")
        self._refresh_ns = round(parameters.refresh_s * SECOND_NS)
        self._next: dict[NodeId, tuple[TopicId, ...]] = {}
        self._told: dict[NodeId, tuple[TopicId, ...]] = {}
        self._heard: dict[NodeId, tuple[TopicId, ...]] = {}
        self._asked: dict[NodeId, None] = {}
        self._failed: dict[NodeId, None] = {}
        self._refused: set[tuple[NodeId, TopicId]] = set()
        self._closing: set[NodeId] = set()

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks]:
        return RingTopics

    def start(self, turn: Turn) -> None:
        turn.set_timer(REFRESH, turn.now_ns + self._draws.randrange(self._refresh_ns))

    def meet(self, turn: Turn, directory: Directory) -> None:
        self._refused.clear()
        self._refresh(turn)

    def fire(self, turn: Turn, name: str) -> None:
        """Recompute the successors. Nodes that could not be reached are candidates again."""
        turn.set_timer(REFRESH, turn.now_ns + self._refresh_ns)
        self._failed.clear()
        self._refresh(turn)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        self._refresh(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        """Leave the topic's ring and tell each node whose successor this node is."""
        for peer, topics in self._heard.items():
            if topic in topics:
                turn.send(peer, RingRefusal((topic,)))
        self._refresh(turn)

    def _refresh(self, turn: Turn) -> None:
        """Recompute the successors and open links to them."""
        found: dict[NodeId, list[TopicId]] = {}
        passed = bitset(self._failed)
        for topic in sorted(self.state.topics):
            if (peer := self._successor(topic, passed)) is not None:
                found.setdefault(peer, []).append(topic)
        self._next = {peer: tuple(topics) for peer, topics in found.items()}
        for peer in self._next:
            if peer not in self.state.neighbours and peer not in self._asked:
                self._asked[peer] = None
                turn.connect(peer)
        self._settle(turn)

    def _successor(self, topic: TopicId, passed: Bitset) -> NodeId | None:
        """Return the next higher subscriber of a topic that does not refuse this node, or the lowest."""
        ring = self._membership.subscribers(topic) & ~passed
        first = self.state.node + 1
        while ring:
            peer = lowest(ring >> first << first or ring)
            if (peer, topic) not in self._refused:
                return peer
            ring ^= 1 << peer
        return None

    def _settle(self, turn: Turn) -> None:
        """Tell the successors their topics, and former successors once links to all are up. Close unneeded links."""
        waiting = any(not self._is_up(peer) for peer in self._next)
        for peer in [*self._told, *(peer for peer in self._next if peer not in self._told)]:
            if self._is_up(peer):
                kept = self._still_mine(peer) if waiting else ()
                self._tell(turn, peer, tuple(sorted({*self._next.get(peer, ()), *kept})))
        for peer in [peer for peer in self._asked if peer not in self._next and not self._is_up(peer)]:
            self._close(turn, peer)

    def _still_mine(self, peer: NodeId) -> list[TopicId]:
        """Return the topics in which a neighbour was told that it is the successor, if both subscribe to them."""
        topics = self._told.get(peer, ())
        return [topic for topic in topics if topic in self.state.topics and (peer, topic) not in self._refused]

    def _tell(self, turn: Turn, peer: NodeId, topics: tuple[TopicId, ...]) -> None:
        if topics != self._told.get(peer, ()):
            self._told[peer] = topics
            turn.send(peer, RingLink(topics))
        self._relink(turn, peer)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if peer in self._closing:
            return
        if isinstance(frame, RingLink):
            self._heard[peer] = frame.topics
            self._refused.difference_update((peer, topic) for topic in frame.topics)
            if refused := tuple(topic for topic in frame.topics if topic not in self.state.topics):
                turn.send(peer, RingRefusal(refused))
            self._relink(turn, peer)
        else:
            assert isinstance(frame, RingRefusal)
            self._refused.update((peer, topic) for topic in frame.topics)
            self._refresh(turn)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """Update the successors. A predecessor tells this node its topics."""
        self._settle(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Replace a lost successor. Skip a node that failed, but not one that closed the link as unneeded."""
        if retrying:
            turn.disconnect(peer, "lost")
        if peer not in self._closing and reason != UNNEEDED:
            self._failed[peer] = None
        self._closing.discard(peer)
        for memory in (self._asked, self._told, self._heard):
            memory.pop(peer, None)
        self._refresh(turn)

    def _is_up(self, peer: NodeId) -> bool:
        return peer in self.state.neighbours and peer not in self._closing

    def _relink(self, turn: Turn, peer: NodeId) -> None:
        """Set the logical links with a neighbour to those that either side needs. Close the link if there are none."""
        both = {*self._told.get(peer, ()), *self._heard.get(peer, ())}
        topics = tuple(sorted(both & self.state.topics))
        self.write(peer, forwards=frozenset(topics))
        self.set_logical(turn, peer, topics, "replaced")
        if not self._told.get(peer) and not self._heard.get(peer):
            self._close(turn, peer)

    def _close(self, turn: Turn, peer: NodeId) -> None:
        turn.disconnect(peer, UNNEEDED)
        self._asked.pop(peer, None)
        if peer in self.state.neighbours:
            self._closing.add(peer)
