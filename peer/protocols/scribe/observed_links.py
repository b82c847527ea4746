"""Scribe's logical links as an observer sees them, if each topic has a tree."""

from peer.core.frames import Frame
from peer.core.observed_links import NO_TOPICS, ObservedLinks
from peer.protocols.scribe.frames import ScribeJoin, ScribeLeave, ScribeRedirect


class TreeTopics(ObservedLinks):
    """The trees in which one end is the other's parent.

    JOIN asks its receiver to be the parent. The child ends that by LEAVE, and the parent refuses or ends it by a
    redirection.
    """

    frames = (ScribeJoin, ScribeLeave, ScribeRedirect)

    def __init__(self) -> None:
        super().__init__()
        self._follows = {True: NO_TOPICS, False: NO_TOPICS}  # the trees in which this end, and the other, is the child

    def take(self, frame: Frame, *, own: bool) -> None:
        match frame:
            case ScribeJoin(groups):
                self._follows[own] |= frozenset(groups)
            case ScribeLeave(groups):
                self._follows[own] -= frozenset(groups)
            case ScribeRedirect(group):
                self._follows[not own] -= {group}
        self.topics = self._follows[True] | self._follows[False]
