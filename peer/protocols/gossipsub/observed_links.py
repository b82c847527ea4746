"""GossipSub's logical links as an observer sees them."""

from peer.core.frames import Frame, Subscriptions
from peer.core.observed_links import NO_TOPICS, ObservedLinks
from peer.protocols.gossipsub.frames import Graft, Prune


class MeshTopics(ObservedLinks):
    """The topics that both ends subscribe to, for which either end sent GRAFT and neither sent PRUNE since.

    A node ignores a GRAFT for a topic that it does not subscribe to, without an answer.
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
