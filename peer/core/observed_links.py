"""Logical links as an observer on the wire sees them: from the frames of a connection, without a trace."""

from typing import ClassVar

from peer.core.frames import Frame, Subscriptions
from peer.core.identifiers import TopicId

NO_TOPICS: frozenset[TopicId] = frozenset()


class ObservedLinks:
    """The topics of the logical links of one end of a connection.

    An observer at this end's host takes the frames of this end when they leave, and the frames of the other end when
    they arrive. A part that decides on logical links names the subclass for its frames (``Part.observe_links``). A new
    connection has no topics. The end of the connection ends all its logical links.

    Attributes:
        frames: the types of frames that begin, replace or end topics; ``take`` gets no others.
        topics: the topics of this end's logical links now.
    """

    frames: ClassVar[tuple[type[Frame], ...]] = ()

    def __init__(self) -> None:
        self.topics = NO_TOPICS

    def take(self, frame: Frame, *, own: bool) -> None:
        """Read the next frame; ``own``: this end sent it."""
        raise NotImplementedError


class SharedTopics(ObservedLinks):
    """For protocols in which the topics that both ends name as their own (``Frame.own_topics``) are logical links."""

    def __init__(self) -> None:
        super().__init__()
        self._named = {True: NO_TOPICS, False: NO_TOPICS}

    def take(self, frame: Frame, *, own: bool) -> None:
        self._named[own] = frozenset(getattr(frame, frame.own_topics))
        self.topics = self._named[True] & self._named[False]


class AnnouncedTopics(SharedTopics):
    """For protocols in which the topics that both ends subscribe to are logical links."""

    frames = (Subscriptions,)
