"""The logical links of neighbours that tell each other their topics by profiles, on the wire."""

from peer.core.observed_links import SharedTopics
from peer.core.tman.frames import Profile


class ProfileTopics(SharedTopics):
    """The topics that the latest profiles of both ends name."""

    frames = (Profile,)
