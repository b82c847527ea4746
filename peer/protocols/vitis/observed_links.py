"""Vitis's logical links as an observer sees them."""

from peer.core.observed_links import SharedTopics
from peer.protocols.vitis.frames import VitisProfile


class ProfileTopics(SharedTopics):
    """The topics that are in the latest profiles of both ends."""

    frames = (VitisProfile,)
