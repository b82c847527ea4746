"""What a run's overlay will be about like, for predictions: with all nodes up, and without what takes time.

Overlays that grow out of requests, walks or meshes have models, in which nodes choose one after the other: a module of
``harness.planning.models`` each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from harness.planning.models import find_model
from harness.workload.interests import Interests
from harness.workload.streams import NETWORK
from peer.core.bitset import Bitset, members
from peer.core.contract import Connect, Directory, PeerInfo, PeerList, Started
from peer.core.node import Part
from peer.core.randomness import substream
from peer.protocols.description import Choice, Composition
from peer.protocols.registry import OVERLAYS, compose

Links = list[list[int]]
"""Every node's neighbours."""

Logical = dict[int, set[int]]
"""A node's neighbours, and the topics on which it sends to each."""

FirstLinks = Callable[[], Links]
"""Gives every node's neighbours, by what each asks for at the start."""


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
        """An overlay whose physical links are those that carry logical ones."""
        return cls([list(others) for others in logical], logical)

    @property
    def degree(self) -> float:
        """Physical links of a node, mean."""
        return sum(map(len, self.neighbours)) / len(self.neighbours)


class Network(Directory):
    """All nodes and their interests, as a membership."""

    __slots__ = ()

    def __init__(self, interests: Interests) -> None:
        super().__init__(PeerInfo(node, topics) for node, topics in enumerate(interests))

    @property
    def known(self) -> Bitset:
        """All nodes."""
        return self.nodes

    def shared_topics(self) -> Iterator[tuple[int, Bitset]]:
        """Every topic with two subscribers at least, rising, and its subscribers."""
        for topic in sorted({topic for info in self for topic in info.topics or ()}):
            if (subscribers := self.subscribers(topic)).bit_count() > 1:
                yield topic, subscribers

    def shuffled(self, among: Bitset, draws: Random) -> list[int]:
        """Some nodes in a random order."""
        nodes = list(members(among))
        draws.shuffle(nodes)
        return nodes


def model_overlay(parts: Composition, interests: Interests, seed: int) -> OverlayModel:
    """The overlay of a composition: by the model of its name, otherwise the links that its nodes ask for at the start.

    Args:
        parts: the composition.
        interests: every node's topics.
        seed: the run's.
    """
    network, draws = Network(interests), substream(seed, NETWORK, "prediction/overlay")
    name = parts.overlay["name"]

    def first_links() -> Links:
        return _first_links(parts, network, seed)

    model = find_model(name, "model_overlay")
    if model is None:
        return OverlayModel(first_links())
    modelled: OverlayModel = model(read_parameters(OVERLAYS, parts.overlay), network, draws, first_links)
    return modelled


def read_parameters(registry: Mapping[str, type[Part]], chosen: Choice) -> Any:  # noqa: ANN401 - each part has its own
    """A part's parameters, its own defaults filled in."""
    given = {key: value for key, value in chosen.items() if key != "name"}
    return msgspec.convert(given, registry[chosen["name"]].Parameters)


def _first_links(parts: Composition, network: Network, seed: int) -> Links:
    """Every node's neighbours, by what each asks for when the bootstrap service has told it of everybody."""
    links: list[set[int]] = [set() for _ in range(len(network))]
    for node, around in enumerate(links):
        core = compose(node, seed, tuple(sorted(network.topics_of(node))), parts)
        for effect in core.handle(0, Started()) + core.handle(0, PeerList(network)):
            if isinstance(effect, Connect):
                around.add(effect.peer)
                links[effect.peer].add(node)
    return [sorted(others) for others in links]


def carry(logical: Sequence[Logical], node: int, peer: int, topic: int, *, both: bool = True) -> None:
    """A link carries a topic; the other way it does so too, or is only there."""
    logical[node].setdefault(peer, set()).add(topic)
    back = logical[peer].setdefault(node, set())
    if both:
        back.add(topic)
