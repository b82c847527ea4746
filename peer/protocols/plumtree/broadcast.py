"""Plumtree: nodes send messages over the eager links of their swarms' trees, and announcements over the lazy ones."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from peer.core.contract import MessageId, NodeId, TopicId, publisher_of
from peer.core.copies import Copies
from peer.core.dissemination.spread import MOST_HOPS, Spreading
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.plumtree.frames import Advert, PlumtreeGraft, PlumtreeIhave, PlumtreePrune, SwarmId
from peer.protocols.plumtree.overlay import Hyparview
from peer.protocols.plumtree.parameters import PlumtreeParameters
from peer.protocols.plumtree.tree import Tree

ANNOUNCE, MISSING = "dissemination/announce", "dissemination/missing"
MILLISECOND_NS = 1_000_000

MOST_ADVERTS = 1000
"""Most messages in one ``PlumtreeIhave``."""

MOST_REPLIES = 3
"""How often a node sends the same message to a neighbour on request."""


class Kept(Struct):
    """A message that a node can still send on request.

    Attributes:
        until_ns: when it is forgotten (ns).
        copy: the copy to send, with the topics of one swarm.
        replies: how often each neighbour got it on request.
    """

    until_ns: int
    copy: Data
    replies: dict[NodeId, int] = {}


class Broadcast(Hyparview, Spreading):
    """Sends each message once through the tree of each of its swarms, and repairs the trees.

    A node forwards the first copy of a message in a swarm over the eager links, and announces it over the lazy ones. It
    answers a duplicate with a PRUNE, which makes the link lazy at both ends. If an announced message does not arrive in
    time, the node sends a GRAFT to the neighbour that announced it. This makes the link eager, and the neighbour sends
    the message.

    A message on several topics travels in the swarm of each of them that the node is in. If several of them use the
    same link, one copy with their topics crosses it. If a publisher does not subscribe to a topic of its message, it
    sends the message to a subscriber of the topic.

    Attributes:
        trees: the node's place in the tree of each swarm in which it has had a neighbour.

    Source: Plumtree section 3, Algorithms 1 to 3; docs/protocols/plumtree.md lists the additions.
    """

    frames = (*Hyparview.frames, *Spreading.frames, PlumtreeIhave, PlumtreeGraft, PlumtreePrune)

    def __init__(self, state: State, membership: Membership, parameters: PlumtreeParameters) -> None:
        Hyparview.__init__(self, state, membership, parameters)
        Spreading.__init__(self, state, parameters.seen_messages)
        self.trees: dict[SwarmId, Tree] = {}
        self._kept: Copies[tuple[SwarmId, MessageId], Kept] = Copies(parameters.seen_messages)
        self._announcing = False

    @staticmethod
    def copies_follow_links(parameters: Mapping[str, Any], *, told: bool, several: bool) -> bool:
        """Return whether each topic has a swarm. In the shared one, the bootstrap service's list may be outdated."""
        return bool(parameters.get("scope", "topic") == "topic")

    @staticmethod
    def copies_may_wait(parameters: Mapping[str, Any]) -> bool:
        """Return True: without an eager neighbour, a node sends the first copy to the first node that asks by GRAFT."""
        return True

    # -------------------------------------------------------------------------------------------------- messages

    def send_own(self, turn: Turn, copy: Data) -> None:
        """Send this node's own message, also to subscribers of topics that this node does not subscribe to."""
        swarms = self.swarms_of(copy.topics)
        self.remember(copy.message_id, swarms)
        self._send_on(turn, None, copy, swarms)
        if self.is_shared:
            return
        for topic in dict.fromkeys(copy.topics):
            if topic not in swarms and (peer := self.subscriber(topic)) is not None:
                self.post(turn, peer, replace(copy, topics=(topic,)))

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        """Handle a message, a frame of Plumtree from a neighbour, or a frame of HyParView."""
        if isinstance(frame, Data):
            Spreading.receive(self, turn, peer, frame)
            return
        if not isinstance(frame, (PlumtreeIhave, PlumtreeGraft, PlumtreePrune)):
            Hyparview.receive(self, turn, peer, frame)
            return
        tree = self.trees.get(frame.swarm)
        if frame.swarm not in self.swarms:
            self.refuse(turn, peer, frame)
        elif tree is None or peer not in tree:
            self.swarms[frame.swarm].receive(turn, peer, frame)  # the sender is not a neighbour
        elif isinstance(frame, PlumtreeIhave):
            self._take_ihave(turn, peer, frame, tree)
        elif isinstance(frame, PlumtreeGraft):
            tree.promote(peer)
            self._reply(turn, peer, frame)
        else:
            tree.demote(peer)

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        """Deliver the first copy, forward the first copy in each swarm, and prune links that bring duplicates."""
        swarms = self.swarms_of(copy.topics)
        if not swarms:
            turn.trace("reject", peer=peer, message_id=copy.message_id, topics=copy.topics, reason="not_subscribed")
            return
        before = self.take(turn, peer, copy) or ()
        fresh = tuple(swarm for swarm in swarms if swarm not in before)
        for swarm in swarms:
            tree = self.trees.get(swarm)
            if swarm in before and tree is not None and peer in tree:
                self._prune(turn, swarm, peer, tree)
        if fresh:
            self.remember(copy.message_id, (*before, *fresh))
            self._send_on(turn, peer, replace(copy, hops=min(copy.hops + 1, MOST_HOPS)), fresh)
            for swarm in fresh:
                self._grow(turn, swarm, peer, copy)

    def _send_on(self, turn: Turn, source: NodeId | None, copy: Data, swarms: tuple[SwarmId, ...]) -> None:
        """Send a copy over the eager links of these swarms, and queue announcements for the lazy ones.

        Args:
            turn: the present turn.
            source: the neighbour that sent it; None = this node.
            copy: the copy.
            swarms: the swarms.
        """
        carried: dict[NodeId, tuple[TopicId, ...]] = {}
        for swarm in swarms:
            part = copy if self.is_shared else replace(copy, topics=(swarm,))
            self._keep(turn, swarm, part)
            tree = self.trees.get(swarm)
            if tree is None:
                continue
            for peer in tree.eager:
                if peer != source:
                    carried[peer] = (*carried.get(peer, ()), *part.topics)
            for peer in tree.lazy:
                if peer != source:
                    tree.queued.setdefault(peer, []).append(Advert(copy.message_id, copy.hops))
                    self._announce_later(turn)
        last: Data | None = None
        for peer, topics in carried.items():
            if last is None or last.topics != topics:  # equal copies are one object, which is encoded once
                last = Data(copy.message_id, topics, copy.hops, UNLIMITED_TTL, copy.payload)
            turn.send(peer, last)

    def _keep(self, turn: Turn, swarm: SwarmId, copy: Data) -> None:
        """Keep a copy for nodes that ask for it, and forget copies that were kept long enough."""
        key = swarm, copy.message_id
        kept = Kept(turn.now_ns + round(self._p.cache_s * 1e9), copy)
        self._kept.put(key, kept, len(copy.payload))
        while (first := next(iter(self._kept.items()), None)) is not None and first[1].until_ns < turn.now_ns:
            self._kept.forget(first[0])

    def _reply(self, turn: Turn, peer: NodeId, graft: PlumtreeGraft) -> None:
        """Send a message that a neighbour asks for, if it is still kept."""
        if graft.message_id is None:
            return
        kept = self._kept.get((graft.swarm, graft.message_id))
        if kept is not None and kept.replies.get(peer, 0) < MOST_REPLIES:
            kept.replies[peer] = kept.replies.get(peer, 0) + 1
            turn.send(peer, kept.copy)

    # ------------------------------------------------------------------------------------------------------ trees

    def neighbour_up(self, turn: Turn, swarm: SwarmId, peer: NodeId) -> None:
        """Make the link of a new neighbour eager.

        Source: Plumtree Algorithm 2, NeighborUp.
        """
        super().neighbour_up(turn, swarm, peer)
        self.trees.setdefault(swarm, Tree()).promote(peer)

    def neighbour_down(self, turn: Turn, swarm: SwarmId, peer: NodeId, reason: str) -> None:
        """Remove a former neighbour from the tree.

        Source: Plumtree Algorithm 2, NeighborDown.
        """
        super().neighbour_down(turn, swarm, peer, reason)
        self.trees[swarm].drop(peer)

    def unsubscribe(self, turn: Turn, topic: TopicId) -> None:
        super().unsubscribe(turn, topic)
        self.trees.pop(topic, None)

    def _prune(self, turn: Turn, swarm: SwarmId, peer: NodeId, tree: Tree) -> None:
        tree.demote(peer)
        turn.send(peer, PlumtreePrune(swarm))

    def _grow(self, turn: Turn, swarm: SwarmId, peer: NodeId, copy: Data) -> None:
        """Add the link of the first copy to the tree, or a lazy link with a much shorter way.

        Args:
            turn: the present turn.
            swarm: the swarm of the tree.
            peer: the neighbour that sent the first copy.
            copy: the copy.

        Source: Plumtree Algorithm 3.
        """
        tree = self.trees.get(swarm)
        announced = None if tree is None else tree.forget(copy.message_id)
        if announced is not None:
            turn.cancel_timer(_missing_timer(swarm, copy.message_id))
        if tree is None or peer not in tree:
            return
        tree.promote(peer)
        best = min(announced, key=announced.__getitem__) if announced else peer
        if best != peer and announced and copy.hops - announced[best] >= self._p.optimisation_threshold:
            tree.promote(best)  # even if it is eager already: it announced the message, so its own end is lazy
            turn.send(best, PlumtreeGraft(swarm, None))
            self._prune(turn, swarm, peer, tree)

    # ---------------------------------------------------------------------------------------------- announcements

    def _announce_later(self, turn: Turn) -> None:
        if not self._announcing:
            self._announcing = True
            turn.set_timer(ANNOUNCE, turn.now_ns + round(self._p.ihave_delay_ms * MILLISECOND_NS))

    def fire(self, turn: Turn, name: str) -> None:
        """Send the announcements, ask for a message that is still missing, or pass the timer on to the overlay."""
        if name.startswith("overlay/"):
            super().fire(turn, name)
        elif name == ANNOUNCE:
            self._announcing = False
            for swarm, tree in self.trees.items():
                queued, tree.queued = tree.queued, {}
                for peer, adverts in queued.items():
                    for first in range(0, len(adverts), MOST_ADVERTS):
                        turn.send(peer, PlumtreeIhave(swarm, tuple(adverts[first : first + MOST_ADVERTS])))
        else:
            swarm_id, identifier = name.split("/")[-2:]
            self._ask(turn, int(swarm_id), int(identifier))

    def _take_ihave(self, turn: Turn, peer: NodeId, frame: PlumtreeIhave, tree: Tree) -> None:
        """Set a timer for each announced message that this node does not have. Source: Plumtree Algorithm 2."""
        for advert in frame.adverts:
            identifier = advert.message_id
            is_here = frame.swarm in self.seen.get(identifier, ()) or publisher_of(identifier) == self.state.node
            if not is_here and tree.note(peer, advert):
                self._wait_for(turn, frame.swarm, identifier, self._p.missing_timeout_ms)

    def _ask(self, turn: Turn, swarm: SwarmId, identifier: MessageId) -> None:
        """Ask the next neighbour that announced a message for it. Source: Plumtree Algorithm 2, Timer."""
        tree = self.trees.get(swarm)
        if tree is None:
            return
        peer = tree.next_announcer(identifier)
        if peer is None:
            tree.forget(identifier)
            return
        tree.promote(peer)
        turn.send(peer, PlumtreeGraft(swarm, identifier))
        self._wait_for(turn, swarm, identifier, self._p.graft_timeout_ms)

    def _wait_for(self, turn: Turn, swarm: SwarmId, identifier: MessageId, timeout_ms: float) -> None:
        turn.set_timer(_missing_timer(swarm, identifier), turn.now_ns + round(timeout_ms * MILLISECOND_NS))


def _missing_timer(swarm: SwarmId, identifier: MessageId) -> str:
    return f"{MISSING}/{swarm}/{identifier}"
