"""HyParView's overlay: the swarms of a node, and the physical links that they share."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from peer.core.bitset import bitset, choose, lowest
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.plumtree.frames import (
    SHARED,
    HyparviewAnswer,
    HyparviewDisconnect,
    HyparviewForwardJoin,
    HyparviewJoin,
    HyparviewNeighbour,
    HyparviewShuffle,
    HyparviewShuffleReply,
    SwarmFrame,
    SwarmId,
)
from peer.protocols.plumtree.observed_links import ActiveTopics
from peer.protocols.plumtree.parameters import PlumtreeParameters
from peer.protocols.plumtree.swarm import UNUSED, Swarm

SHUFFLE, REQUESTS = "overlay/shuffle", "overlay/requests"

MOST_DIALS = 64
"""Limit on the links that are being opened. Frames for another node are dropped."""

MOST_POSTED = 64
"""Limit on the frames that wait for such a link."""

SPREAD = 7919
"""Distance between the contacts of successive topics, so that no node is the contact of many topics."""


class Hyparview(Part):
    """Keeps the node in its swarms: those of its topics, or the shared one.

    A physical link is there as long as a swarm of either end needs it: for a neighbour in its active view, or for a
    request that awaits its answer. A link that was opened for a frame alone, such as the reply to a shuffle, is closed
    when the frame is sent. If the other end needs the link, it opens the link again. Logical links are the links of
    active views: of each topic's swarm, or, in the shared overlay, of the topics to which both ends subscribe by the
    bootstrap service's list.

    Attributes:
        swarms: by number.

    Source: HyParView section 4; a swarm for each topic, and shared links, as in iroh-gossip.
    """

    Parameters = PlumtreeParameters
    frames: ClassVar[tuple[type[Frame], ...]] = (
        HyparviewJoin,
        HyparviewForwardJoin,
        HyparviewNeighbour,
        HyparviewAnswer,
        HyparviewDisconnect,
        HyparviewShuffle,
        HyparviewShuffleReply,
    )
    writes = frozenset({"forwards", "logical", "brief"})

    def __init__(self, state: State, membership: Membership, parameters: PlumtreeParameters) -> None:
        Part.__init__(self, state)
        self._membership = membership
        self._p = parameters
        self._draws = substream(state.seed, state.node, "overlay")
        self._period_ns = round(parameters.shuffle_s * 1e9)
        self._timeout_ns = round(parameters.request_timeout_s * 1e9)
        self._awaiting = False
        self._posted: dict[NodeId, list[Frame]] = {}
        self.is_shared = parameters.scope == "shared"
        numbers = [SHARED] if self.is_shared else sorted(state.topics)
        self.swarms = {number: self._open(number) for number in numbers}

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks] | None:
        """See ``Part``: in the shared overlay, the bootstrap service's list says which topics a link carries."""
        return ActiveTopics if parameters.get("scope", "topic") == "topic" else None

    @staticmethod
    def ask_interests(node: NodeId, topics: tuple[TopicId, ...]) -> Iterator[Frame]:
        """Ask to become a neighbour for each topic: nodes of its swarm answer, others say that they are not in it."""
        return (HyparviewNeighbour(topic, False) for topic in topics)

    # ----------------------------------------------------------------------------------------------------- swarms

    def _open(self, number: SwarmId) -> Swarm:
        return Swarm(number, self.state, self._p, self._draws, self)

    def swarms_of(self, topics: Iterable[TopicId]) -> tuple[SwarmId, ...]:
        """The swarms of this node in which a message on these topics travels."""
        if self.is_shared:
            return (SHARED,)
        return tuple(topic for topic in dict.fromkeys(topics) if topic in self.swarms)

    def start(self, turn: Turn) -> None:
        """Start the shuffles, at an instant within the period that differs between nodes."""
        turn.set_timer(SHUFFLE, turn.now_ns + 1 + self._draws.randrange(self._period_ns))

    def meet(self, turn: Turn, directory: Directory) -> None:
        for swarm in self.swarms.values():
            swarm.enter(turn)
        self._relink_shared(turn)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        if not self.is_shared:
            self.swarms[topic] = self._open(topic)
            self.swarms[topic].enter(turn)
        self._relink_shared(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        if not self.is_shared:
            self.swarms.pop(topic).leave(turn)
        self._relink_shared(turn)

    def fire(self, turn: Turn, name: str) -> None:
        """Shuffle, or give up requests that were not answered in time."""
        if name == SHUFFLE:
            turn.set_timer(SHUFFLE, turn.now_ns + self._period_ns)
            for swarm in self.swarms.values():
                swarm.tick(turn)
            return
        for swarm in self.swarms.values():
            swarm.expire(turn)
        due = [request.due_ns for swarm in self.swarms.values() for request in swarm.requests.values()]
        self._awaiting = due != []
        if due:
            turn.set_timer(REQUESTS, min(due))

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        assert isinstance(frame, SwarmFrame)
        swarm = self.swarms.get(frame.swarm)
        if swarm is not None:
            swarm.receive(turn, peer, frame)
        else:
            self.refuse(turn, peer, frame)

    def refuse(self, turn: Turn, peer: NodeId, frame: SwarmFrame) -> None:
        """Tell the sender of a frame on a swarm that this node is not in it, unless the sender knows already."""
        turn.trace("reject", peer=peer, kind=frame.kind, reason="not_subscribed")
        if not isinstance(frame, (HyparviewDisconnect, HyparviewShuffleReply)):
            self.post(turn, peer, HyparviewDisconnect(frame.swarm, False, ()))

    # ---------------------------------------------------------------------------------------------- listed nodes

    def contact(self, swarm: SwarmId, excluded: Iterable[NodeId]) -> NodeId | None:
        """The first listed node from a place on that depends on the swarm alone.

        If nodes that start at once entered through different contacts, several overlays would form.
        """
        listed = self._listed(swarm) & ~bitset(excluded)
        first = max(swarm, 0) * SPREAD % self.state.numbers
        return lowest(listed >> first << first or listed) if listed else None

    def stranger(self, swarm: SwarmId, excluded: Iterable[NodeId]) -> NodeId | None:
        """A random listed node of a swarm; None = all are excluded."""
        listed = self._listed(swarm) & ~bitset(excluded)
        return choose(listed, self._draws) if listed else None

    def subscriber(self, topic: TopicId) -> NodeId | None:
        """A random listed subscriber, preferably a linked one; None = there is none."""
        listed = self._membership.subscribers(topic)
        around = listed & bitset(self.state.neighbours)
        return choose(around or listed, self._draws) if listed else None

    def _listed(self, swarm: SwarmId) -> int:
        return self._membership.known if swarm == SHARED else self._membership.subscribers(swarm)

    # ------------------------------------------------------------------------------------------------------ links

    def post(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Send a frame, over a new link if there is none."""
        if peer in self.state.neighbours:
            turn.send(peer, frame)
            return
        if peer not in self._posted:
            if len(self._posted) >= MOST_DIALS:
                return
            self._posted[peer] = []
            turn.connect(peer)
        if len(self._posted[peer]) < MOST_POSTED:
            self._posted[peer].append(frame)

    def release(self, turn: Turn, peer: NodeId) -> None:
        """Close the link to a node that no swarm needs, or no longer ask for one."""
        if not any(swarm.uses(peer) for swarm in self.swarms.values()):
            self._posted.pop(peer, None)
            turn.disconnect(peer, UNUSED)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """Send what waited for the link, and close it if it was opened for that alone."""
        self._relink(turn, peer)
        posted = self._posted.pop(peer, ())
        for frame in posted:
            turn.send(peer, frame)
        if posted:
            self.release(turn, peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Treat the node as failed, without waiting for the driver to open the link again."""
        if retrying:
            turn.disconnect(peer, "lost")
        self._posted.pop(peer, None)
        for swarm in self.swarms.values():
            swarm.link_down(turn, peer, reason)

    def await_answers(self, turn: Turn) -> None:
        """Set the timer for a request that was made now, unless it is set for an earlier request."""
        if not self._awaiting:
            self._awaiting = True
            turn.set_timer(REQUESTS, turn.now_ns + self._timeout_ns)

    # ---------------------------------------------------------------------------------------------- logical links

    def neighbour_up(self, turn: Turn, swarm: SwarmId, peer: NodeId) -> None:
        self._relink(turn, peer)

    def neighbour_down(self, turn: Turn, swarm: SwarmId, peer: NodeId, reason: str) -> None:
        """A node is no longer in a swarm's active view."""
        if peer in self.state.neighbours:
            self._relink(turn, peer, reason)

    def _relink_shared(self, turn: Turn) -> None:
        """In the shared overlay, logical links follow the interests of both ends."""
        if self.is_shared:
            for peer in self.state.neighbours:
                self._relink(turn, peer, "left")

    def _relink(self, turn: Turn, peer: NodeId, reason: str = "displaced") -> None:
        used = [number for number, swarm in self.swarms.items() if peer in swarm.views.active]
        interests = self._membership.topics_of(peer) if used and self.is_shared else frozenset(used)
        self.write(peer, forwards=interests, brief=not used)
        self.set_logical(turn, peer, tuple(sorted(interests & self.state.topics)), reason)
