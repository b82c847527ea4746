"""Which nodes a program is told to connect to: drawn from the seed among those that are up."""

from peer.core.bitset import Bitset, bitset, choose
from peer.core.directory import Directory
from peer.core.identifiers import NodeId
from peer.core.randomness import substream
from peer.runtime.bootstrap import first_directory, tell
from peer.runtime.spec import OverlayDocument


class Connections:
    """The connections that one node is told to open.

    Args:
        overlay: the nodes of the run.
        node: the node.
        degree: how many connections it opens, if there are as many other nodes.

    Attributes:
        chosen: the nodes that it was told to connect to and that have not left since.
    """

    def __init__(self, overlay: OverlayDocument, node: NodeId, degree: int) -> None:
        self.chosen: Bitset = 0
        self._overlay = overlay
        self._spec = overlay.nodes[node]
        self._degree = degree
        self._draws = substream(self._spec.seed, node, "connections")

    def begin(self) -> list[NodeId]:
        """Choose for a node that starts with the peers.

        Of two such nodes that choose each other, only the lower one is told.
        """
        own, node = self.update(first_directory(self._overlay)), self._spec.node
        return [peer for peer in own if not (peer < node and node in self._first_choice(peer))]

    def update(self, directory: Directory) -> list[NodeId]:
        """Choose nodes in the place of those that the directory lacks, and return them. It is also the way to join."""
        known = bitset(info.node for info in tell(self._spec, directory)) & ~(1 << self._spec.node)
        self.chosen &= known
        fresh: list[NodeId] = []
        while (left := known & ~self.chosen) and self.chosen.bit_count() < self._degree:
            fresh.append(choose(left, self._draws))
            self.chosen |= 1 << fresh[-1]
        return fresh

    def forget(self) -> None:
        """Forget the connections, since the instance that was told them has ended."""
        self.chosen = 0

    def _first_choice(self, peer: NodeId) -> list[NodeId]:
        return Connections(self._overlay, peer, self._degree).update(first_directory(self._overlay))
