"""The logical links of neighbours that tell each other their topics by profiles, as an observer sees them."""

from peer.core.observed_links import SharedTopics
from peer.protocols.tman.frames import Profile


class ProfileTopics(SharedTopics):
    """The topics that are in the latest profiles of both ends."""

    frames = (Profile,)
