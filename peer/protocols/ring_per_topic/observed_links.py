"""The rings' logical links as an observer sees them."""

from peer.core.frames import Frame
from peer.core.observed_links import NO_TOPICS, ObservedLinks
from peer.protocols.ring_per_topic.frames import RingLink, RingRefusal


class RingTopics(ObservedLinks):
    """The rings in which one end is the other's successor. Each ``RingLink`` names all such rings of its sender.

    A node has no logical link in a ring that it refuses.
    """

    frames = (RingLink, RingRefusal)

    def __init__(self) -> None:
        super().__init__()
        self._linked = {True: NO_TOPICS, False: NO_TOPICS}

    def take(self, frame: Frame, *, own: bool) -> None:
        match frame:
            case RingLink(topics):
                self._linked[own] = frozenset(topics)
            case RingRefusal(topics) if own:
                self._linked = {end: linked - frozenset(topics) for end, linked in self._linked.items()}
        self.topics = self._linked[True] | self._linked[False]
