"""The full view: all nodes in the latest answer of the bootstrap service."""

from msgspec import Struct

from peer.core.bitset import Bitset
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.parts import Part, State, Turn


class FullView(Part):
    """Knows the nodes in the latest answer of the bootstrap service."""

    def __init__(self, state: State, parameters: Struct) -> None:
        super().__init__(state)
        self._known: Bitset = 0
        self._directory = Directory()

    def meet(self, turn: Turn, directory: Directory) -> None:
        self._directory = directory
        self._known = directory.nodes & ~(1 << self.state.node)

    @property
    def known(self) -> Bitset:
        return self._known

    def topics_of(self, node: NodeId) -> frozenset[TopicId]:
        return self._directory.topics_of(node)

    def subscribers(self, topic: TopicId) -> Bitset:
        return self._directory.subscribers(topic) & self._known
