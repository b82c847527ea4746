"""Approximate models of a run's overlay, for predictions: all nodes are up, and nothing takes time.

Overlays that result from requests, walks or meshes have models in which nodes choose one after the other, each in a
module of ``harness.planning.models``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from harness.planning.models import find_model
from harness.workload.interests import Interests
from peer.core.bitset import Bitset, members
from peer.core.contract import Connect, Directory, PeerInfo, PeerList, Started
from peer.core.parts import Part
from peer.core.randomness import NETWORK, substream
from peer.protocols.description import Choice, Composition
from peer.protocols.registry import OVERLAYS, compose

MOST_CANDIDATES = 1000
"""Nodes that a modelled node knows when it selects its routing table."""

Links = list[list[int]]
"""Every node's neighbours."""

Logical = dict[int, set[int]]
"""A node's neighbours and the topics on which it sends to each."""


class OverlayModel(Struct, frozen=True):
    """An overlay at rest.

    Attributes:
        neighbours: every node's physical links.
        logical: every node's logical links; None = a link carries all topics that its ends share.
    """

    neighbours: Links
    logical: Sequence[Logical] | None = None

    @classmethod
    def from_logical(cls, logical: Sequence[Logical]) -> OverlayModel:
        """Return the overlay whose physical links are those that carry logical links."""
        return cls([list(others) for others in logical], logical)

    @property
    def degree(self) -> float:
        """The mean number of physical links per node."""
        return sum(map(len, self.neighbours)) / len(self.neighbours)


class FullMembership(Directory):
    """A membership of all nodes and their interests.

    Args:
        parts: what the nodes are made of.
        interests: every node's topics.
        seed: the seed of the run.

    Attributes:
        draws: for a model's choices.
        seed: the seed of the run.
    """

    __slots__ = ("_parts", "draws", "seed")

    def __init__(self, parts: Composition, interests: Interests, seed: int) -> None:
        super().__init__(PeerInfo(node, topics) for node, topics in enumerate(interests))
        self._parts = parts
        self.seed = seed
        self.draws = substream(seed, NETWORK, "prediction/overlay")

    @property
    def known(self) -> Bitset:
        return self.nodes

    def shared_topics(self) -> Iterator[tuple[int, Bitset]]:
        """Yield every topic with at least two subscribers, in ascending order, and its subscribers."""
        for topic in sorted({topic for info in self for topic in info.topics or ()}):
            if (subscribers := self.subscribers(topic)).bit_count() > 1:
                yield topic, subscribers

    def shuffled(self, among: Bitset) -> list[int]:
        nodes = list(members(among))
        self.draws.shuffle(nodes)
        return nodes

    def make_node(self, node: int, **given: object) -> Any:  # noqa: ANN401 - a composed node, whose parts models know
        """Return a node as it is in the run, with some parameters of its overlay besides or in place of the run's."""
        parts = msgspec.structs.replace(self._parts, overlay=self._parts.overlay | given)
        return compose(node, self.seed, tuple(sorted(self.topics_of(node))), parts, nodes=len(self))

    def first_links(self) -> Links:
        """Return every node's neighbours from the links that it opens when bootstrap has named all nodes."""
        links: list[set[int]] = [set() for _ in range(len(self))]
        for node, around in enumerate(links):
            core = self.make_node(node)
            for effect in core.handle(0, Started()) + core.handle(0, PeerList(self)):
                if isinstance(effect, Connect):
                    around.add(effect.peer)
                    links[effect.peer].add(node)
        return [sorted(others) for others in links]

    def selected_links(self) -> Links:
        """Return every node's neighbours if it selects its routing table from ``MOST_CANDIDATES`` nodes."""
        links: list[set[int]] = [set() for _ in range(len(self))]
        everybody = range(len(self))
        for node, around in enumerate(links):
            overlay = self.make_node(node).parts["overlay"]
            drawn = self.draws.sample(everybody, min(len(self), MOST_CANDIDATES))
            for peer in overlay.select({peer: self.topics_of(peer) for peer in drawn if peer != node}):
                around.add(peer)
                links[peer].add(node)
        return [sorted(others) for others in links]


def model_overlay(parts: Composition, interests: Interests, seed: int) -> OverlayModel:
    """Return the overlay of a composition: from its model, otherwise the links that its nodes open at the start.

    The arguments are those of ``FullMembership``.
    """
    network = FullMembership(parts, interests, seed)
    model = find_model(parts.overlay["name"], "model_overlay")
    if model is None:
        return OverlayModel(network.first_links())
    modelled: OverlayModel = model(read_parameters(OVERLAYS, parts.overlay), network)
    return modelled


def read_parameters(registry: Mapping[str, type[Part]], chosen: Choice) -> Any:  # noqa: ANN401 - each part has its own
    """Return a part's parameters with its defaults filled in."""
    given = {key: value for key, value in chosen.items() if key != "name"}
    return msgspec.convert(given, registry[chosen["name"]].Parameters)


def carry(logical: Sequence[Logical], node: int, peer: int, topic: int, *, both: bool = True) -> None:
    """Add a topic to a link, in both directions or in one; the link itself always exists in both."""
    logical[node].setdefault(peer, set()).add(topic)
    back = logical[peer].setdefault(node, set())
    if both:
        back.add(topic)
