"""Vitis's logical links on the wire."""

from peer.core.observed_links import SharedTopics
from peer.protocols.vitis.frames import VitisProfile


class ProfileTopics(SharedTopics):
    """The topics that the latest profiles of both ends name."""

    frames = (VitisProfile,)
