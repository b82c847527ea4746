"""HyParView's logical links on the wire, where each topic has a swarm."""

from peer.core.frames import Frame
from peer.core.observed_links import ObservedLinks
from peer.protocols.plumtree.frames import HyparviewAnswer, HyparviewDisconnect


class ActiveTopics(ObservedLinks):
    """The swarms in whose active view this end has the other.

    An answer that accepts puts each end into the other's active view; an end that has no place sends a disconnect. A
    refusal ends nothing: its sender did not have the other when it read the request, and may have read an answer that
    accepts since, if the two asked each other at the same time.
    """

    frames = (HyparviewAnswer, HyparviewDisconnect)

    def take(self, frame: Frame, *, own: bool) -> None:
        match frame:
            case HyparviewAnswer(swarm, True):
                self.topics |= {swarm}
            case HyparviewDisconnect(swarm):
                self.topics -= {swarm}
