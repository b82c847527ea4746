"""Relay paths: from each gateway of a topic to the topic's rendezvous node, kept as soft state.

The rendezvous node of a topic is the node closest to the topic's point on the ring. A node that is a gateway of a topic
asks its neighbour closest to that point to relay the topic, and that neighbour asks its own in the same way. So all
paths of a topic end at one node once the ring has converged. Messages travel along the paths in both directions and
reach all gateways.
"""

from collections.abc import Container, Iterable
from typing import ClassVar

from peer.core.contract import NodeId, TopicId
from peer.core.encoded_sizes import count_array_head_bytes, count_integers_bytes
from peer.core.frames import Frame, register
from peer.core.identifiers import TopicNumber
from peer.core.parts import State, Turn
from peer.protocols.tman.ring import RingOrder, rank, topic_key

MOST_RELAYED = 8192
"""Most topics that a node relays for one neighbour."""

HANDOVER_ROUNDS = 2
"""Rounds for which a path stays after another one replaces it. By then, the new path reaches the rendezvous node."""

Topics = frozenset[TopicId]


@register
class RelayRequest(Frame, frozen=True):
    """The receiver is the sender's next node on the way to the rendezvous nodes of these topics.

    ``whole``: these are all such topics; otherwise they are added to those that the sender named before.
    """

    kind: ClassVar[int] = 115
    topics: tuple[TopicNumber, ...]
    whole: bool

    def count_body_bytes(self) -> int:
        """Count an array of two items: the topics and a byte."""
        return 2 + count_array_head_bytes(len(self.topics)) + count_integers_bytes(self.topics)


class RelayPaths:
    """A node's place on the relay paths of all topics.

    In every round, ``refresh`` sends each next node the whole set of topics that it should relay, if the set changed or
    ``repeat`` rounds have passed. The set replaces earlier requests. The node forgets a neighbour's request after twice
    that time, or when its link ends. It passes on a request for a topic that is new to it at once.
    A node only relays for nodes that are farther from the topic's point than itself, so no path has a cycle.

    The node goes on asking a next node for ``HANDOVER_ROUNDS`` after another one replaced it: messages from the
    rendezvous node take that way until the new path exists.

    Attributes:
        parents: the next node on the way to each topic's rendezvous node; the path of a topic without an entry ends at
            this node.
        children: the neighbours that asked this node to relay a topic, by topic.

    Args:
        state: the node's state.
        repeat: rounds after which an unchanged request is sent again.
        avoided: the neighbours that cannot be next nodes. Call ``reroute`` after a change.

    Source: Vitis section III-B and III-D.
    """

    __slots__ = (
        "_asked",
        "_asks",
        "_avoided",
        "_former",
        "_own",
        "_repeat",
        "_ring",
        "_round",
        "_stale",
        "_state",
        "children",
        "parents",
    )

    def __init__(self, state: State, repeat: int, avoided: Container[NodeId] = ()) -> None:
        self._state = state
        self._repeat = repeat
        self._avoided = avoided
        self._former: dict[tuple[NodeId, TopicId], int] = {}
        self._round = state.node % repeat
        self._own: dict[TopicId, None] = {}
        self._asked: dict[NodeId, tuple[RelayRequest, int]] = {}
        self._asks: dict[NodeId, RelayRequest] = {}
        self._ring: RingOrder | None = None
        self._stale = True
        self.parents: dict[TopicId, NodeId] = {}
        self.children: dict[TopicId, dict[NodeId, None]] = {}

    def receivers(self, topic: TopicId) -> Iterable[NodeId]:
        """Return this node's neighbours on the paths of a topic."""
        parent = self.parents.get(topic)
        return (*(() if parent is None else (parent,)), *self.children.get(topic, ()))

    def is_on_path(self, topic: TopicId) -> bool:
        """Return whether this node is a gateway, a relay or the rendezvous node of a topic."""
        return topic in self._own or topic in self.children

    def next_hop(self, topic: TopicId) -> NodeId | None:
        """Return the neighbour closest to a topic's point; None if no neighbour is closer than this node."""
        if self._ring is None:
            peers = [peer for peer in self._state.neighbours if peer not in self._avoided]
            self._ring = RingOrder((*peers, self._state.node))
        nearest = self._ring.nearest(topic_key(topic))
        return None if nearest == self._state.node else nearest

    # -------------------------------------------------------------------------------------------------- requests

    def request(self, turn: Turn, topics: Iterable[TopicId]) -> None:
        """Become a gateway of more topics at once (RequestRelay)."""
        fresh = [topic for topic in topics if topic not in self._own]
        self._own.update(dict.fromkeys(fresh))
        self._pass_on(turn, [topic for topic in fresh if topic not in self.children])

    def refresh(self, turn: Turn, own: Iterable[TopicId]) -> None:
        """Become a gateway of exactly these topics, and update the requests to next nodes."""
        own = dict.fromkeys(own)
        if own != self._own:
            self._own = own
            self._stale = True
        self._round += 1
        oldest = self._round - 2 * self._repeat
        for peer in [peer for peer, (_, heard) in self._asked.items() if heard < oldest]:
            self._drop(peer, self._asked.pop(peer)[0].topics)
        if over := [link for link, until in self._former.items() if until <= self._round]:
            for link in over:
                del self._former[link]
            self._stale = True
        if self._stale:
            self._stale = False
            self._route_all(turn)
        if self._round % self._repeat == 0:
            for peer, frame in self._asks.items():
                turn.send(peer, frame)

    def _route_all(self, turn: Turn) -> None:
        """Recompute the next node of every topic, and send requests that changed."""
        wanted: dict[NodeId, list[TopicId]] = {}
        parents: dict[TopicId, NodeId] = {}
        for topic in dict.fromkeys((*self._own, *self.children)):
            peer = self.next_hop(topic)
            if peer is not None:
                parents[topic] = peer
                wanted.setdefault(peer, []).append(topic)
        for topic, peer in self.parents.items():
            if peer in self._state.neighbours and self.is_on_path(topic) and parents.get(topic) != peer:
                self._former.setdefault((peer, topic), self._round + HANDOVER_ROUNDS)
        for peer, topic in self._former:
            if self.is_on_path(topic) and parents.get(topic) != peer:
                wanted.setdefault(peer, []).append(topic)
        self.parents = parents
        for peer in [peer for peer in self._asks if peer not in wanted]:
            del self._asks[peer]
            turn.send(peer, RelayRequest((), True))
        for peer, topics in wanted.items():
            before = self._asks.get(peer)
            asked = tuple(sorted(topics[:MOST_RELAYED]))  # this node's own topics come first
            if before is None or before.topics != asked:
                frame = self._asks[peer] = RelayRequest(asked, True)
                if self._round % self._repeat:
                    turn.send(peer, frame)

    def _pass_on(self, turn: Turn, topics: Iterable[TopicId]) -> None:
        """Ask the next nodes of more topics at once."""
        wanted: dict[NodeId, list[TopicId]] = {}
        for topic in topics:
            peer = self.next_hop(topic)
            if peer is not None:
                self.parents[topic] = peer
                wanted.setdefault(peer, []).append(topic)
        for peer, more in wanted.items():
            before = self._asks[peer].topics if peer in self._asks else ()
            more = more[: MOST_RELAYED - len(before)]
            if more:
                turn.send(peer, RelayRequest(tuple(more), False))
                self._asks[peer] = RelayRequest(tuple(sorted({*before, *more})), True)

    # ---------------------------------------------------------------------------------------------------- events

    def receive(self, turn: Turn, peer: NodeId, frame: RelayRequest) -> None:
        """Relay the topics that a neighbour asks for.

        Args:
            turn: the present turn.
            peer: the neighbour.
            frame: its request.
        """
        before, _ = self._asked.get(peer, (None, 0))
        if before is not None and frame.whole and (frame is before or frame.topics == before.topics):
            self._asked[peer] = before, self._round
            return
        if len(frame.topics) > MOST_RELAYED:
            turn.trace("reject", peer=peer, kind=frame.kind, reason="too_many_topics")
            return
        held = dict.fromkeys(before.topics) if before is not None else {}
        asked = dict.fromkeys(frame.topics if frame.whole else (*held, *frame.topics))
        if len(asked) > MOST_RELAYED:
            turn.trace("reject", peer=peer, kind=frame.kind, reason="too_many_topics")
            return
        fresh = [topic for topic in asked if topic not in held]
        own = self._state.node
        wrong = [topic for topic in fresh if rank(peer, topic_key(topic)) < rank(own, topic_key(topic))]
        if wrong:
            turn.trace("reject", peer=peer, kind=frame.kind, topics=tuple(wrong), reason="closer_than_receiver")
            for topic in wrong:
                del asked[topic]
            fresh = [topic for topic in fresh if topic in asked]
        self._drop(peer, (topic for topic in held if topic not in asked))
        unknown = [topic for topic in fresh if not self.is_on_path(topic)]
        for topic in fresh:
            self.children.setdefault(topic, {})[peer] = None
        held_frame = frame if frame.whole and not wrong else RelayRequest(tuple(asked), True)
        self._asked[peer] = held_frame, self._round
        self._pass_on(turn, unknown)

    def reroute(self) -> None:
        """Recompute the next nodes in the next round, since the neighbours or the avoided ones changed."""
        self._ring = None
        self._stale = True

    def link_down(self, turn: Turn, peer: NodeId) -> None:
        """Forget the requests of a neighbour, and replace it as a parent at once."""
        self.reroute()
        for link in [link for link in self._former if link[0] == peer]:
            del self._former[link]
        if (asked := self._asked.pop(peer, None)) is not None:
            self._drop(peer, asked[0].topics)
        if (lost := self._asks.pop(peer, None)) is not None:
            for topic in lost.topics:
                if self.parents.get(topic) == peer:
                    del self.parents[topic]
            self._pass_on(
                turn, [topic for topic in lost.topics if self.is_on_path(topic) and topic not in self.parents]
            )

    def _drop(self, peer: NodeId, topics: Iterable[TopicId]) -> None:
        for topic in topics:
            if (children := self.children.get(topic)) is not None:
                children.pop(peer, None)
                if not children:
                    del self.children[topic]
                    self._stale = True
