"""Scribe whole: the trees, and the messages that go up to the group's root and down its tree."""

from peer.core.contract import NodeId, TopicId
from peer.core.dissemination.spread import MOST_HOPS, Spreading
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.scribe.overlay import Scribe
from peer.protocols.scribe.parameters import ScribeParameters

Leg = int
"""A way that a message takes through a node: 2 x its group, and 1 where it goes down the tree."""

DELIVERED = -1
"""Remembered with the legs of a message that the application has, or that it published."""


class Multicast(Scribe, Spreading):
    """Sends a message up to the root of each of its groups, and from there down to all in the tree.

    A node passes it on once in each direction. It delivers the first copy, whichever way that goes; on the way down the
    nodes between publisher and root get a second one. A copy bears the topics of the groups that its link serves.

    Source: Scribe, multicast message dissemination.
    """

    frames = (*Scribe.frames, *Spreading.frames)

    def __init__(self, state: State, membership: Membership, parameters: ScribeParameters) -> None:
        Scribe.__init__(self, state, membership, parameters)
        Spreading.__init__(self, state, parameters.seen_messages)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, Data):
            Spreading.receive(self, turn, peer, frame)
        else:
            Scribe.receive(self, turn, peer, frame)

    def send_own(self, turn: Turn, copy: Data) -> None:
        self._pass_on(turn, None, copy, copy.hops, (DELIVERED,))

    def receive_copy(self, turn: Turn, peer: NodeId, copy: Data) -> None:
        """Deliver the first copy that the application wants, and pass on what goes a new way."""
        legs = self.seen.get(copy.message_id, ())
        is_wanted = not self.state.topics.isdisjoint(copy.topics)
        if legs and is_wanted and DELIVERED not in legs:  # so far it went by in other groups only
            del self.seen[copy.message_id]
        self.take(turn, peer, copy)
        if is_wanted and DELIVERED not in legs:
            legs = (*legs, DELIVERED)
        self._pass_on(turn, peer, copy, min(copy.hops + 1, MOST_HOPS), legs)

    def _pass_on(self, turn: Turn, source: NodeId | None, copy: Data, hops: int, legs: tuple[Leg, ...]) -> None:
        carried: dict[NodeId, tuple[TopicId, ...]] = {}
        for group, topics in self.groups_of(copy):
            is_down, receivers = self.receivers(group, source)
            leg = 2 * group + is_down
            if leg in legs:
                continue
            legs = (*legs, leg)
            for peer in receivers:
                carried[peer] = (*carried.get(peer, ()), *topics)
        self.remember(copy.message_id, legs)
        last: Data | None = None
        for peer, topics in carried.items():
            if last is None or last.topics != topics:  # equal copies are one value, which is encoded once
                last = Data(copy.message_id, topics, hops, UNLIMITED_TTL, copy.payload)
            turn.send(peer, last)
