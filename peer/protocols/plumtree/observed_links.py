"""HyParView's logical links as an observer sees them, if each topic has a swarm."""

from peer.core.frames import Frame
from peer.core.observed_links import ObservedLinks
from peer.protocols.plumtree.frames import HyparviewAnswer, HyparviewDisconnect


class ActiveTopics(ObservedLinks):
    """The swarms in which this end has the other end in its active view.

    After an answer that accepts, each end is in the other's active view; an end without a free place sends a
    disconnect. A refusal ends nothing: the other end was not in its sender's view at the request. It may have entered
    that view since by an answer that accepts, if the two asked each other at the same time.
    """

    frames = (HyparviewAnswer, HyparviewDisconnect)

    def take(self, frame: Frame, *, own: bool) -> None:
        match frame:
            case HyparviewAnswer(swarm, True):
                self.topics |= {swarm}
            case HyparviewDisconnect(swarm):
                self.topics -= {swarm}
