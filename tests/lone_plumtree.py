"""Plumtree nodes of tests: their parts, and one node whose neighbours are the test."""

from peer.core.contract import (
    NodeId,
    Started,
)
from peer.core.frames import Frame
from peer.core.node import StatefulNode
from peer.protocols.plumtree.frames import (
    HyparviewAnswer,
    HyparviewNeighbour,
    SwarmId,
)
from peer.protocols.plumtree.overlay import Hyparview
from peer.protocols.plumtree.swarm import Swarm
from peer.protocols.plumtree.tree import Tree
from peer.protocols.registry import Composition, compose
from peer.testing import Solo, part_of, sends

SECOND_NS = 1_000_000_000


def composition(**parameters: object) -> Composition:
    part = {"name": "plumtree", **parameters}
    return Composition(part, part, interests="private")


def overlay_of(core: StatefulNode) -> Hyparview:
    return part_of(core, "overlay")


def trees_of(core: StatefulNode) -> dict[SwarmId, Tree]:
    return part_of(core, "dissemination").trees


class Lone(Solo):
    """Node 1, alone in the swarm of topic 0."""

    def __init__(self, **parameters: object) -> None:
        super().__init__(compose(1, 3, (0,), composition(**parameters), nodes=200))
        self.give(Started())

    def befriend(self, *peers: NodeId) -> None:
        """Give the node these neighbours."""
        for peer in peers:
            self.link_up(peer, False)
            assert self.hear(peer, HyparviewNeighbour(0, True)) == [(peer, accept())]

    def befriend_anyway(self, peer: NodeId) -> None:
        """Give the node another neighbour, for which one may have to make room."""
        self.link_up(peer, False)
        assert (peer, accept()) in self.hear(peer, HyparviewNeighbour(0, True))

    def hear(self, peer: NodeId, frame: Frame) -> list[tuple[NodeId, Frame]]:
        """Receive a frame, and return what the node sends then."""
        return sends(self.receive(peer, frame))

    @property
    def swarm(self) -> Swarm:
        return overlay_of(self.node).swarms[0]

    @property
    def tree(self) -> Tree:
        return trees_of(self.node)[0]


def accept() -> HyparviewAnswer:
    return HyparviewAnswer(0, True)
