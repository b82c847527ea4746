"""The partial view: a fixed share of all nodes, drawn uniformly at random."""

import hashlib
from typing import Annotated

from msgspec import Meta, Struct

from peer.core.bitset import Bitset, bitset, members, sample
from peer.core.contract import Directory, NodeId, TopicId
from peer.core.directory import NOTHING
from peer.core.membership.full_view import FullView
from peer.core.parts import State, Turn
from peer.core.randomness import substream


class PartialParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The partial view: a share of all nodes."""

    known_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.05
    """Share of the other nodes that a node knows, with their interests if these are disclosed."""


class PartialView(FullView):
    """Knows the share ``known_ratio`` of the nodes that the bootstrap service names.

    It draws a subset of exactly that share uniformly from the first answer. A node that a later answer names for the
    first time enters with the probability ``known_ratio``, by a hash of the seed and both nodes. That decision is made
    once per node: a node that leaves and returns is in the view if it was before, so that views do not drift.

    The view of a node takes two bitsets (2.6 kB in a network of 10,000 nodes). All nodes share the directory.

    Source: SpiderCast section 3.7.
    """

    Parameters = PartialParameters

    def __init__(self, state: State, parameters: PartialParameters) -> None:
        super().__init__(state, parameters)
        self._known_ratio = parameters.known_ratio
        self._chosen: Bitset = 0
        self._judged: Bitset = 1 << state.node

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Decide on new nodes. The view then has the chosen nodes that are in the directory."""
        newcomers = directory.nodes & ~self._judged
        if self._judged == 1 << self.state.node:
            self._chosen = self._draw(newcomers)
        elif newcomers:
            self._chosen |= bitset(node for node in members(newcomers) if self._lets_in(node))
        self._judged |= newcomers
        super().meet(turn, directory)
        self._known &= self._chosen

    def topics_of(self, node: NodeId) -> frozenset[TopicId]:
        """Return the topics that a node subscribes to; none for nodes that were not chosen."""
        return super().topics_of(node) if self._known >> node & 1 else NOTHING

    def _draw(self, nodes: Bitset) -> Bitset:
        draws = substream(self.state.seed, self.state.node, "membership")
        return sample(nodes, round(self._known_ratio * nodes.bit_count()), draws)

    def _lets_in(self, newcomer: NodeId) -> bool:
        digest = hashlib.sha256(f"{self.state.seed}/{self.state.node}/membership/{newcomer}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < self._known_ratio * 2**64
