"""All of Scribe: the trees, and the messages that go up to the group's root and down its tree."""

from peer.core.contract import NodeId, TopicId
from peer.core.dissemination.spread import MOST_HOPS, Spreading
from peer.core.frames import UNLIMITED_TTL, Data, Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.scribe.overlay import Scribe
from peer.protocols.scribe.parameters import ScribeParameters

Leg = int
"""The direction of a message at a node: 2 x its group, plus 1 if it goes down the tree."""

DELIVERED = -1
"""An item among the legs of a message that the node has delivered or published."""


class Multicast(Scribe, Spreading):
    """Sends a message up to the root of each of its groups, and from there down to all nodes in the tree.

    A node forwards it once in each direction and delivers the first copy, whatever its direction. The nodes between
    publisher and root get a second copy on the way down. A copy has the topics of the groups that its link serves.

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
        """Deliver the first copy on a subscribed topic, and forward copies in new directions."""
        legs = self.seen.get(copy.message_id, ())
        is_wanted = not self.state.topics.isdisjoint(copy.topics)
        if legs and is_wanted and DELIVERED not in legs:  # earlier copies were in other groups only
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
            if last is None or last.topics != topics:  # equal copies are one object, which is encoded once
                last = Data(copy.message_id, topics, hops, UNLIMITED_TTL, copy.payload)
            turn.send(peer, last)
