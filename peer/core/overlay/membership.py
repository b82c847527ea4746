"""What an overlay asks of the membership part."""

from __future__ import annotations

from typing import Protocol

from peer.core.contract import NodeId


class Membership(Protocol):
    """A view of the network. ``candidates``: nodes to connect to, rising, without this one."""

    candidates: tuple[NodeId, ...]
