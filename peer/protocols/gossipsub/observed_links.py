"""GossipSub's logical links on the wire."""

from peer.core.frames import Frame, Subscriptions
from peer.core.observed_links import NO_TOPICS, ObservedLinks
from peer.protocols.gossipsub.frames import Graft, Prune


class MeshTopics(ObservedLinks):
    """The meshes of this end that have the other: grafted by either end, pruned by none, subscribed to by both.

    A GRAFT for a topic to which its receiver does not subscribe is ignored, and not answered.
    """

    frames = (Subscriptions, Graft, Prune)

    def __init__(self) -> None:
        super().__init__()
        self._subscribed = NO_TOPICS

    def take(self, frame: Frame, *, own: bool) -> None:
        match frame:
            case Subscriptions(topics):
                self.topics &= frozenset(topics)
                if own:
                    self._subscribed = frozenset(topics)
            case Graft(topics):
                self.topics |= self._subscribed.intersection(topics)
            case Prune(pruned):
                self.topics -= {each.topic for each in pruned}
