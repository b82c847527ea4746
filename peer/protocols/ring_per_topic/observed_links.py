"""The rings' logical links on the wire."""

from peer.core.frames import Frame
from peer.core.observed_links import NO_TOPICS, ObservedLinks
from peer.protocols.ring_per_topic.frames import RingLink, RingRefusal


class RingTopics(ObservedLinks):
    """The rings on which one end comes next after the other: each ``RingLink`` names all of its sender's.

    A node has no logical link on a ring that it refuses.
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
