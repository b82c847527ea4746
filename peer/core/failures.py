"""Nodes to which a link failed: an overlay does not choose them again for a while."""

from __future__ import annotations

from itertools import takewhile

from peer.core.bitset import Bitset, bitset
from peer.core.contract import NodeId

FORGET_NS = 30_000_000_000
"""How long a failure counts (ns). A node that left and came back is a candidate again after it."""


class Failures:
    """The nodes whose links failed within the last ``FORGET_NS``, by the instant of the last failure.

    An overlay that finds too few other candidates forgets all of them at once (``clear``) and tries them again.
    """

    __slots__ = ("_at_ns",)

    def __init__(self) -> None:
        self._at_ns: dict[NodeId, int] = {}  # the oldest first

    def add(self, now_ns: int, node: NodeId) -> None:
        """A link to the node failed."""
        self._at_ns.pop(node, None)
        self._at_ns[node] = now_ns

    def at(self, now_ns: int) -> Bitset:
        """The nodes that are not to be chosen now."""
        old = takewhile(lambda failure: now_ns - failure[1] >= FORGET_NS, self._at_ns.items())
        for node, _ in list(old):
            del self._at_ns[node]
        return bitset(self._at_ns)

    def clear(self) -> None:
        """Forget all of them."""
        self._at_ns.clear()

    def __bool__(self) -> bool:
        """Whether there is any, also one that is only forgotten at the next look."""
        return bool(self._at_ns)
