"""StAN's logical links as an observer sees them."""

from peer.core.frames import Frame
from peer.core.observed_links import ObservedLinks
from peer.protocols.stan.frames import StanRide


class RidingTopics(ObservedLinks):
    """The views in which this end has the other end. Each ``StanRide`` of this end names all of them."""

    frames = (StanRide,)

    def take(self, frame: Frame, *, own: bool) -> None:
        assert isinstance(frame, StanRide)
        if own:
            self.topics = frozenset(frame.topics)
