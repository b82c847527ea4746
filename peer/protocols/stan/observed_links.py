"""StAN's logical links on the wire."""

from peer.core.frames import Frame
from peer.core.observed_links import ObservedLinks
from peer.protocols.stan.frames import StanRide


class RidingTopics(ObservedLinks):
    """The views in which this end has the other: each ``StanRide`` that it sends names all of them."""

    frames = (StanRide,)

    def take(self, frame: Frame, *, own: bool) -> None:
        assert isinstance(frame, StanRide)
        if own:
            self.topics = frozenset(frame.topics)
