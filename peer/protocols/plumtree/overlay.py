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
"""Most links that are being opened. The node drops frames for more nodes."""

MOST_POSTED = 64
"""Most frames that wait for such a link."""

SPREAD = 7919
"""Distance between the contacts of consecutive topics, so that no node is the contact of many topics."""


class Hyparview(Part):
    """Keeps the node in its swarms: the swarms of its topics, or the shared one.

    A physical link exists as long as a swarm of either end needs it: for a neighbour in its active view, or for a
    request that awaits its answer. If a node opened a link only for a frame, such as the reply to a shuffle, it closes
    the link after the frame. If the other end needs the link, it redials. Logical links are the links of active views:
    in the swarm of each topic, or in the shared overlay the topics that both ends subscribe to by the bootstrap
    service's list.

    Attributes:
        swarms: the swarms by number.

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
        """Return ``ActiveTopics`` if each topic has a swarm. In the shared one, frames do not show a link's topics."""
        return ActiveTopics if parameters.get("scope", "topic") == "topic" else None

    @staticmethod
    def ask_interests(node: NodeId, topics: tuple[TopicId, ...]) -> Iterator[Frame]:
        """Yield requests to become a neighbour for each topic. A node refuses if it is not in the topic's swarm."""
        return (HyparviewNeighbour(topic, False) for topic in topics)

    # ----------------------------------------------------------------------------------------------------- swarms

    def _open(self, number: SwarmId) -> Swarm:
        return Swarm(number, self.state, self._p, self._draws, self)

    def swarms_of(self, topics: Iterable[TopicId]) -> tuple[SwarmId, ...]:
        """Return the swarms of this node in which a message on these topics travels."""
        if self.is_shared:
            return (SHARED,)
        return tuple(topic for topic in dict.fromkeys(topics) if topic in self.swarms)

    def start(self, turn: Turn) -> None:
        """Begin the shuffles at a random instant within the first period."""
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
        """Shuffle, or give up requests without an answer in time."""
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
        """Tell the sender of a frame that this node is not in the swarm, unless the sender knows that already.

        Args:
            turn: the present turn.
            peer: the sender.
            frame: the frame.
        """
        turn.trace("reject", peer=peer, kind=frame.kind, reason="not_subscribed")
        if not isinstance(frame, (HyparviewDisconnect, HyparviewShuffleReply)):
            self.post(turn, peer, HyparviewDisconnect(frame.swarm, False, ()))

    # ---------------------------------------------------------------------------------------------- listed nodes

    def contact(self, swarm: SwarmId, excluded: Iterable[NodeId]) -> NodeId | None:
        """Return the first listed node from a number on that depends only on the swarm.

        If nodes that start at the same time entered through different contacts, several overlays would form.
        """
        listed = self._listed(swarm) & ~bitset(excluded)
        first = max(swarm, 0) * SPREAD % self.state.numbers
        return lowest(listed >> first << first or listed) if listed else None

    def stranger(self, swarm: SwarmId, excluded: Iterable[NodeId]) -> NodeId | None:
        """Return a random listed node of a swarm; None = all are excluded."""
        listed = self._listed(swarm) & ~bitset(excluded)
        return choose(listed, self._draws) if listed else None

    def subscriber(self, topic: TopicId) -> NodeId | None:
        """Return a random listed subscriber, preferably a linked one; None = there is none."""
        listed = self._membership.subscribers(topic)
        around = listed & bitset(self.state.neighbours)
        return choose(around or listed, self._draws) if listed else None

    def _listed(self, swarm: SwarmId) -> int:
        return self._membership.known if swarm == SHARED else self._membership.subscribers(swarm)

    # ------------------------------------------------------------------------------------------------------ links

    def post(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Send a frame. If there is no link, open one.

        Args:
            turn: the present turn.
            peer: the receiver.
            frame: the frame.
        """
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
        """Close the link to a node that no swarm needs, or stop opening it."""
        if not any(swarm.uses(peer) for swarm in self.swarms.values()):
            self._posted.pop(peer, None)
            turn.disconnect(peer, UNUSED)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """Send the frames that waited for the link, and close it if it was opened only for them."""
        self._relink(turn, peer)
        posted = self._posted.pop(peer, ())
        for frame in posted:
            turn.send(peer, frame)
        if posted:
            self.release(turn, peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Treat the node as failed, and do not wait until the driver has redialled."""
        if retrying:
            turn.disconnect(peer, "lost")
        self._posted.pop(peer, None)
        for swarm in self.swarms.values():
            swarm.link_down(turn, peer, reason)

    def await_answers(self, turn: Turn) -> None:
        """Set the timer for a new request, unless it is set for an earlier request."""
        if not self._awaiting:
            self._awaiting = True
            turn.set_timer(REQUESTS, turn.now_ns + self._timeout_ns)

    # ---------------------------------------------------------------------------------------------- logical links

    def neighbour_up(self, turn: Turn, swarm: SwarmId, peer: NodeId) -> None:
        self._relink(turn, peer)

    def neighbour_down(self, turn: Turn, swarm: SwarmId, peer: NodeId, reason: str) -> None:
        """Update the logical links with a node that left a swarm's active view.

        Args:
            turn: the present turn.
            swarm: the swarm.
            peer: the node.
            reason: why logical links end, for traces.
        """
        if peer in self.state.neighbours:
            self._relink(turn, peer, reason)

    def _relink_shared(self, turn: Turn) -> None:
        """Update the logical links in the shared overlay after a change of interests."""
        if self.is_shared:
            for peer in self.state.neighbours:
                self._relink(turn, peer, "left")

    def _relink(self, turn: Turn, peer: NodeId, reason: str = "displaced") -> None:
        used = [number for number, swarm in self.swarms.items() if peer in swarm.views.active]
        interests = self._membership.topics_of(peer) if used and self.is_shared else frozenset(used)
        self.write(peer, forwards=interests, brief=not used)
        self.set_logical(turn, peer, tuple(sorted(interests & self.state.topics)), reason)
