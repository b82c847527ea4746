"""Logical links as an observer on the wire reads them: from the frames of a connection, without a trace."""

from typing import ClassVar

from peer.core.frames import Frame, Subscriptions
from peer.core.identifiers import TopicId

NO_TOPICS: frozenset[TopicId] = frozenset()


class ObservedLinks:
    """The topics of the logical links that one end of a connection has on it.

    An observer at this end's host takes the frames that it sends when they leave, and those of the other end when they
    arrive. A part that decides over logical links names the subclass for its frames (``Part.observe_links``). A new
    connection has no topics, and its end ends all of them.

    Attributes:
        frames: the types that begin, replace or end topics; ``take`` gets no others.
        topics: of this end's logical links now.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = ()

    def __init__(self) -> None:
        self.topics = NO_TOPICS

    def take(self, frame: Frame, *, own: bool) -> None:
        """Read the next frame; ``own``: this end sent it."""
        raise NotImplementedError


class SharedTopics(ObservedLinks):
    """Of nodes that have a logical link for each topic that both ends name as their own (``Frame.own_topics``)."""

    def __init__(self) -> None:
        super().__init__()
        self._named = {True: NO_TOPICS, False: NO_TOPICS}

    def take(self, frame: Frame, *, own: bool) -> None:
        self._named[own] = frozenset(getattr(frame, frame.own_topics))
        self.topics = self._named[True] & self._named[False]


class AnnouncedTopics(SharedTopics):
    """Of nodes whose logical links are the topics to which both ends subscribe."""

    frames = (Subscriptions,)
