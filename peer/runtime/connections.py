"""The nodes that a program must connect to, drawn from those that are up.

The draws are those of an overlay that opens links to random nodes (``peer.core.outgoing``). So programs with
``peer.connect = N`` have the connections of GossipSub with ``connections = N`` and ``discovery = "random"``, if all
nodes are up.
"""

from peer.core.bitset import Bitset, bitset, choose
from peer.core.directory import Directory
from peer.core.identifiers import NodeId
from peer.core.outgoing import DRAWS
from peer.core.randomness import substream
from peer.instances.bootstrap import first_directory, tell
from peer.instances.spec import OverlayDocument


class Connections:
    """The connections that the program of one node must open.

    Args:
        overlay: the nodes of the run.
        node: the node.
        degree: the number of connections that it opens, if there are as many other nodes.

    Attributes:
        chosen: the nodes that it had to connect to and that have not left since.
    """

    def __init__(self, overlay: OverlayDocument, node: NodeId, degree: int) -> None:
        self.chosen: Bitset = 0
        self._overlay = overlay
        self._spec = overlay.nodes[node]
        self._degree = degree
        self._draws = substream(self._spec.seed, node, DRAWS)  # as an overlay draws that opens links to random nodes

    def begin(self) -> list[NodeId]:
        """Return the nodes for a node that starts with the peers.

        If two such nodes choose each other, only the lower one opens the connection.
        """
        own, node = self.update(first_directory(self._overlay)), self._spec.node
        return [peer for peer in own if not (peer < node and node in self._first_choice(peer))]

    def update(self, directory: Directory) -> list[NodeId]:
        """Choose and return nodes in place of those that the directory lacks. Use it for joins, too."""
        known = bitset(info.node for info in tell(self._spec, directory)) & ~(1 << self._spec.node)
        self.chosen &= known
        fresh: list[NodeId] = []
        while (left := known & ~self.chosen) and self.chosen.bit_count() < self._degree:
            fresh.append(choose(left, self._draws))
            self.chosen |= 1 << fresh[-1]
        return fresh

    def forget(self) -> None:
        """Forget the connections, since their instance has ended."""
        self.chosen = 0

    def _first_choice(self, peer: NodeId) -> list[NodeId]:
        return Connections(self._overlay, peer, self._degree).update(first_directory(self._overlay))
