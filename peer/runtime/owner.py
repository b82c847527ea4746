"""Whom a link pool tells of its links."""

from __future__ import annotations

from typing import Protocol

from peer.core.contract import NodeId
from peer.core.frames import Frame
from peer.trace import TraceEvent


class Owner(Protocol):
    """What the pool tells its owner."""

    def link_up(self, peer: NodeId, outbound: bool) -> None:
        """A link is up; ``outbound``: it was asked for here."""

    def link_down(self, peer: NodeId, reason: str, retrying: bool) -> None:
        """A link is gone, or was given up before it came up."""

    def frame_received(self, peer: NodeId, frame: Frame) -> None:
        """A frame came over a link that is up."""

    def trace(self, event: TraceEvent) -> None:
        """Write a trace event."""
