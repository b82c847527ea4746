"""An overlay in which SpiderCast's two maintenance tasks choose the neighbours, whatever their aims are.

The tasks decide which nodes are neighbours. This part manages links, heartbeats and the neighbours' interests. A
physical link exists as long as the other node is a neighbour in either task, or a request to it is open.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.observed_links import ObservedLinks
from peer.core.parts import Part, State, Turn
from peer.core.randomness import substream
from peer.protocols.spidercast.coverage import Interest
from peer.protocols.spidercast.frames import (
    SpiderConnect,
    SpiderConnectOk,
    SpiderDisconnect,
    SpiderDisconnectOk,
    SpiderHeartbeat,
    SpiderLeave,
    SpiderRedirect,
    TaskFrame,
)
from peer.protocols.spidercast.maintenance import SECOND_NS, Aim, MaintenanceParameters
from peer.protocols.spidercast.neighbour_task import Task
from peer.protocols.spidercast.observed_links import NeighbourTopics

HEARTBEAT = "overlay/heartbeat"
TASKS = ("overlay/greedy", "overlay/random")
"""The tasks' timers, in the order of their codes."""


class MaintainedOverlay(Part):
    """Two maintenance tasks, their links, and the state that neighbours exchange.

    A node closes a link that it asked for if none of its tasks needs it, if it receives LEAVE, or if it suspects the
    other side. The other side gets ``LinkDown``, which ends the relation if it still has one. So both sides agree in
    the end even if frames are lost, and the physical degree at rest is the number of distinct neighbours.

    Two neighbours tell each other their interests. So they have a logical link for every topic that they share, as long
    as they are neighbours in at least one task.

    Attributes:
        tasks: the greedy and the random task, in the order of their codes.
        interest: the node's topics, in rising order.
        version: how often the interest has changed.

    Source: SpiderCast sections 2.3 and 2.4.
    """

    Parameters = MaintenanceParameters
    frames = (
        SpiderConnect,
        SpiderConnectOk,
        SpiderRedirect,
        SpiderDisconnect,
        SpiderDisconnectOk,
        SpiderLeave,
        SpiderHeartbeat,
    )
    writes = frozenset({"interests", "forwards", "logical", "brief"})

    def __init__(
        self, state: State, membership: Membership, parameters: MaintenanceParameters, aims: tuple[Aim, Aim]
    ) -> None:
        super().__init__(state)
        self.membership = membership
        self.draws = substream(state.seed, state.node, "overlay")
        self.interest: tuple[TopicId, ...] = tuple(sorted(state.topics))
        self.version = 0
        self._heartbeat_ns = round(parameters.heartbeat_s * SECOND_NS)
        self._suspect_ns = round(parameters.suspect_after_s * SECOND_NS)
        self._telling_until_ns = -1
        self._wanted: set[NodeId] = set()
        self._closing: set[NodeId] = set()
        self._idle_since_ns: dict[NodeId, int] = {}
        for aim in aims:
            aim.recount(state.topics, ())
        self.tasks = tuple(
            Task(code, timer, aim, self, parameters) for code, (timer, aim) in enumerate(zip(TASKS, aims, strict=True))
        )

    @staticmethod
    def observe_links(parameters: Mapping[str, Any]) -> type[ObservedLinks]:
        return NeighbourTopics

    @staticmethod
    def ask_interests(node: NodeId, topics: tuple[TopicId, ...]) -> Iterator[Frame]:
        """Yield a request to become a neighbour. The answer contains an interest."""
        yield SpiderConnect(0, 0, 1, 0, topics)

    def start(self, turn: Turn) -> None:
        """Begin the rounds of the tasks that need neighbours, and the heartbeats."""
        for task in self.tasks:
            if task.aim.wanted:
                task.start(turn)
        turn.set_timer(HEARTBEAT, turn.now_ns + self.draws.randrange(self._heartbeat_ns))

    def fire(self, turn: Turn, name: str) -> None:
        if name == HEARTBEAT:
            self._beat(turn)
        else:
            self.tasks[TASKS.index(name)].maintain(turn)

    def leave(self, turn: Turn) -> None:
        for code, task in enumerate(self.tasks):
            for peer in task.neighbours:
                turn.send(peer, SpiderLeave(code))

    # ------------------------------------------------------------------------------------------------ interests

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        self._change_interest(turn)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        self._change_interest(turn)

    def _change_interest(self, turn: Turn) -> None:
        """Use the new interest in rounds and heartbeats from now on.

        Heartbeats contain it for so long that a node that receives none of them suspects this node in any case.
        """
        self.interest = tuple(sorted(self.state.topics))
        self.version += 1
        self._telling_until_ns = turn.now_ns + self._suspect_ns + 2 * self._heartbeat_ns
        for task in self.tasks:
            task.reset_aim(self.state.topics)
        for peer in self._peers():
            self.changed(turn, peer, "left")

    def _learn(self, turn: Turn, peer: NodeId, version: int, topics: tuple[TopicId, ...]) -> tuple[int, Interest]:
        """Note the interest that a peer sent, and return its newest known interest with the version.

        Args:
            turn: the present turn.
            peer: the peer.
            version: the version of the interest in its frame.
            topics: the interest in its frame.
        """
        records = [task.neighbours[peer] for task in self.tasks if peer in task.neighbours]
        if records and records[0].version >= version:
            return records[0].version, records[0].interest
        interest = self._share(peer, topics)
        for task in self.tasks:
            task.learn(peer, version, interest)
        if records:
            self.changed(turn, peer, "unsubscribed")
        return version, interest

    def _share(self, peer: NodeId, topics: tuple[TopicId, ...]) -> Interest:
        """Return the topics as a set: the membership's set if it is equal, which all nodes of a process share."""
        known = self.membership.topics_of(peer)
        return known if len(known) == len(topics) and known.issuperset(topics) else frozenset(topics)

    # --------------------------------------------------------------------------------------------------- frames

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if peer in self._closing:
            return
        if isinstance(frame, SpiderHeartbeat):
            self._hear(turn, peer, frame)
            return
        assert isinstance(frame, TaskFrame)
        task = self.tasks[frame.task]
        match frame:
            case SpiderConnect():
                task.take_connect(turn, peer, frame, *self._learn(turn, peer, frame.version, frame.interest))
            case SpiderConnectOk():
                task.take_connect_ok(turn, peer, frame, *self._learn(turn, peer, frame.version, frame.interest))
            case SpiderRedirect():
                task.take_redirect(turn, peer, frame)
            case SpiderDisconnect():
                task.take_disconnect(turn, peer)
            case SpiderDisconnectOk():
                task.take_disconnect_ok(turn, peer)
            case SpiderLeave():
                task.take_leave(turn, peer)

    def _hear(self, turn: Turn, peer: NodeId, frame: SpiderHeartbeat) -> None:
        first, second = self.tasks
        if frame.greedy is not None:
            first.hear(turn, peer, *frame.greedy)
        if frame.random is not None:
            second.hear(turn, peer, *frame.random)
        if frame.interest is not None:
            self._learn(turn, peer, frame.version, frame.interest)

    def _beat(self, turn: Turn) -> None:
        """Send a heartbeat to every neighbour, and suspect the neighbours that sent none.

        A heartbeat names only the tasks in which the receiver is a neighbour. So if only one side has a relation, it
        ends it by suspicion.
        """
        turn.set_timer(HEARTBEAT, turn.now_ns + self._heartbeat_ns)
        for task in self.tasks:
            task.suspect_silent(turn, turn.now_ns - self._suspect_ns)
        peers = self._peers()
        self._close_idle(turn, len(peers))
        interest = self.interest if turn.now_ns <= self._telling_until_ns else None
        first, second = ((len(task.neighbours), task.target) for task in self.tasks)
        for (is_greedy, is_random), alike in groupby(peers, self._relations):
            beat = SpiderHeartbeat(first if is_greedy else None, second if is_random else None, self.version, interest)
            turn.send_each(tuple(alike), beat)

    def _relations(self, peer: NodeId) -> tuple[bool, bool]:
        """Return in which of the two tasks the peer is a neighbour."""
        first, second = self.tasks
        return peer in first.neighbours, peer in second.neighbours

    def _peers(self) -> list[NodeId]:
        """Return the distinct neighbours, in the order in which they became neighbours."""
        first, second = self.tasks
        if not second.neighbours:
            return list(first.neighbours)
        return list(first.neighbours | second.neighbours)

    # ---------------------------------------------------------------------------------------------------- links

    def reach(self, turn: Turn, peer: NodeId) -> bool:
        """Return whether there is a link to the peer. If not, ask for one; ``link_up`` or ``link_down`` follows."""
        if peer in self.state.neighbours:
            return True
        self._wanted.add(peer)
        turn.connect(peer)
        return False

    def is_closing(self, peer: NodeId) -> bool:
        """Return whether a link to the peer is about to end, so that tasks must not send it anything."""
        return peer in self._closing

    def release(self, turn: Turn, peer: NodeId, reason: str, parted: bool = False) -> None:
        """Close the link to the peer if no task needs it.

        Args:
            turn: the present turn.
            peer: the peer.
            reason: why.
            parted: whether the other side does not need the link any more, either.
        """
        up = peer in self.state.neighbours
        if peer in self._closing or any(task.uses(peer) for task in self.tasks):
            return
        if peer in self._wanted or (parted and up):
            self._wanted.discard(peer)
            turn.disconnect(peer, reason)
            if up:
                self._closing.add(peer)

    def _close_idle(self, turn: Turn, peers: int) -> None:
        """Close links that no task has used for as long as a neighbour may be silent, since their opener may be down.

        ``peers``: the number of distinct neighbours.
        """
        if len(self.state.neighbours) == peers:
            self._idle_since_ns.clear()
            return
        before, now_ns = self._idle_since_ns, turn.now_ns
        idle = [peer for peer in self.state.neighbours if not any(task.uses(peer) for task in self.tasks)]
        self._idle_since_ns = {peer: before.get(peer, now_ns) for peer in idle}
        for peer, since_ns in self._idle_since_ns.items():
            if since_ns < now_ns - self._suspect_ns:
                self.release(turn, peer, "idle", parted=True)

    def changed(self, turn: Turn, peer: NodeId, reason: str) -> None:
        """Update the logical links with a peer after it became a neighbour of a task or stopped being one.

        Args:
            turn: the present turn.
            peer: the peer.
            reason: why logical links end, for traces.
        """
        if peer not in self.state.neighbours:
            return
        record = next((task.neighbours[peer] for task in self.tasks if peer in task.neighbours), None)
        topics: Interest = record.interest if record is not None else frozenset()
        self.write(peer, interests=topics, forwards=topics, brief=record is None)
        self.set_logical(turn, peer, tuple(sorted(self.state.topics & topics)), reason)

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        """Send the requests that waited for the link. Close it if there are none."""
        self.write(peer, brief=True)  # until the peer is a neighbour of a task
        for task in self.tasks:
            task.link_up(turn, peer)
        self.release(turn, peer, "unused")

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """End all relations that used the link. None waits for the link to return."""
        own = peer in self._wanted
        self._closing.discard(peer)
        if not retrying:
            self._wanted.discard(peer)
        for task in self.tasks:
            task.link_down(turn, peer, reason, retrying, own)
        self.release(turn, peer, "unused")
