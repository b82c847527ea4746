"""What a run's overlay will be about like, for predictions: with all nodes up, and without what takes time.

Overlays that grow out of requests, walks or meshes have models, in which nodes choose one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from harness.workload.interests import Interests
from harness.workload.streams import NETWORK
from peer.core.bitset import Bitset, bitset, members, sample
from peer.core.contract import Connect, Directory, PeerInfo, PeerList, Started
from peer.core.node import Part
from peer.core.randomness import substream
from peer.protocols.gossipsub.parameters import GossipsubParameters
from peer.protocols.registry import OVERLAYS, Choice, Composition, compose
from peer.protocols.scribe.overlay import ScribeParameters
from peer.protocols.scribe.pastry import Pastry, make_key
from peer.protocols.similarity.overlay import AnyNodes, SimilarityParameters, SimilarNodes
from peer.protocols.spidercast.coverage import GreedyCoverage, RandomCoverage
from peer.protocols.spidercast.maintenance import Aim
from peer.protocols.spidercast.overlay import SpidercastParameters
from peer.protocols.stan.parameters import PlacedStanParameters

Links = list[list[int]]
"""Every node's neighbours."""

Logical = dict[int, set[int]]
"""A node's neighbours, and the topics on which it sends to each."""


class OverlayModel(Struct, frozen=True):
    """An overlay at rest.

    Attributes:
        neighbours: every node's physical links.
        logical: every node's logical links; None = a link carries all topics that its ends share.
    """

    neighbours: Links
    logical: Sequence[Logical] | None = None

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
    name, parameters = parts.overlay["name"], read_parameters(OVERLAYS, parts.overlay)
    if name in _MODELS:
        return _MODELS[name](parameters, network, draws)
    links = _first_links(parts, network, seed)
    return _gossipsub(parameters, network, links, draws) if name == "gossipsub" else OverlayModel(links)


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


# --------------------------------------------------------------------------------------------- one for all topics


def _spidercast(parameters: SpidercastParameters, network: Network, draws: Random) -> OverlayModel:
    kinds: list[Callable[[], Aim]] = [
        lambda: GreedyCoverage(parameters.greedy_coverage, fair=parameters.ties == "random"),
        lambda: RandomCoverage(parameters.random_coverage),
    ]
    return _maintained(kinds, network, draws)


def _similarity(parameters: SimilarityParameters, network: Network, draws: Random) -> OverlayModel:
    kinds: list[Callable[[], Aim]] = [lambda: SimilarNodes(parameters.similar), lambda: AnyNodes(parameters.random)]
    return _maintained(kinds, network, draws)


def _maintained(kinds: Iterable[Callable[[], Aim]], network: Network, draws: Random) -> OverlayModel:
    """The links of independent tasks, none of which is given up again."""
    linked = [0] * len(network)
    for kind in kinds:
        for node, others in enumerate(_reach(kind, network, draws)):
            linked[node] |= others
    return OverlayModel([list(members(others)) for others in linked])


def _reach(kind: Callable[[], Aim], network: Network, draws: Random) -> list[Bitset]:
    """One task: each node links until it has reached its aim, with those that are below their limit.

    What nodes accept beyond the limit (``margin``) they part with again.
    """
    aims, linked = [kind() for _ in range(len(network))], [0] * len(network)
    for node, aim in enumerate(aims):
        aim.recount(network.topics_of(node), ())
    room = network.nodes
    for node in network.shuffled(network.nodes, draws):
        aim = aims[node]
        while aim.wanted and aim.missing():
            peer = aim.next_node(network, room & ~linked[node] & ~(1 << node), draws)
            if peer is None:
                break
            for one, other in ((node, peer), (peer, node)):
                linked[one] |= 1 << other
                aims[one].add(network.topics_of(other))
                if linked[one].bit_count() >= aims[one].limit:
                    room &= ~(1 << one)
    return linked


# --------------------------------------------------------------------------------------------- one for each topic


def _ring_per_topic(parameters: Struct, network: Network, draws: Random) -> OverlayModel:
    rings: list[Logical] = [{} for _ in range(len(network))]
    for topic, subscribers in _topics(network):
        ring = list(members(subscribers))
        for node, successor in pairwise([*ring, ring[0]]):
            _carry(rings, node, successor, topic)
    return _from_topics(rings)


def _stan(parameters: PlacedStanParameters, network: Network, draws: Random) -> OverlayModel:
    """The views when nodes have found the lightest of each topic's subscribers."""
    views: list[Logical] = [{} for _ in range(len(network))]
    weights = np.random.Generator(np.random.PCG64(draws.getrandbits(128)))
    members_of = {topic: np.array(list(members(subscribers))) for topic, subscribers in _topics(network)}
    for node in range(len(network)):
        weigh = weights.random(len(network))
        weigh[node] = math.inf
        for topic in sorted(network.topics_of(node) & members_of.keys()):
            others = members_of[topic]
            size = min(len(others) - 1, max(1, round(parameters.degree_factor * math.log(len(others)))))
            lightest = others[np.argpartition(weigh[others], size - 1)[:size]]
            for peer in sorted(lightest.tolist()):
                _carry(views, node, peer, topic, both=parameters.both_directions)
    return _from_topics(views)


def _gossipsub(parameters: GossipsubParameters, network: Network, links: Links, draws: Random) -> OverlayModel:
    """Meshes over connections drawn at random, and over such as are sought where a mesh lacks peers."""
    meshes: list[Logical] = [{} for _ in range(len(network))]
    for topic, subscribers in _topics(network):
        mesh: dict[int, set[int]] = {node: set() for node in members(subscribers)}
        for node in network.shuffled(subscribers, draws):
            if len(mesh[node]) >= parameters.chosen.d_lo:
                continue
            around = [peer for peer in links[node] if peer in mesh]
            if parameters.discovery == "topics" and len(around) < parameters.d:
                fresh = subscribers & ~bitset([node, *around])
                for peer in members(sample(fresh, parameters.d - len(around), draws)):
                    links[node].append(peer)
                    links[peer].append(node)
                    around.append(peer)
            fit = [peer for peer in around if peer not in mesh[node] and len(mesh[peer]) < parameters.d_hi]
            for peer in draws.sample(fit, min(parameters.d - len(mesh[node]), len(fit))):
                mesh[node].add(peer)
                mesh[peer].add(node)
                _carry(meshes, node, peer, topic)
    return OverlayModel(links, meshes)


def _scribe(parameters: ScribeParameters, network: Network, draws: Random) -> OverlayModel:
    """Trees of the ways to the groups' roots, as if all nodes had room for any number of neighbours."""
    routing = [Pastry(node, parameters.digit_bits, parameters.leaf_set) for node in range(len(network))]
    trees: list[Logical] = [{} for _ in routing]
    for group, subscribers in _groups(parameters, network):
        key, inside = make_key(f"group/{group}"), set()
        for member in members(subscribers):
            node: int | None = member
            while node is not None and node not in inside:
                inside.add(node)
                parent = routing[node].next_hop(key, network.nodes & ~(1 << node))
                if parent is not None:
                    _carry(trees, node, parent, group)
                node = parent
    return _from_topics(trees)


def _groups(parameters: ScribeParameters, network: Network) -> Iterator[tuple[int, Bitset]]:
    """The groups and their members; random ones are as large as each other."""
    if parameters.grouping == "topic":
        yield from _topics(network)
    else:
        for group in range(parameters.groups):
            yield group, bitset(range(group, len(network), parameters.groups))


def _topics(network: Network) -> Iterator[tuple[int, Bitset]]:
    """Every topic with two subscribers at least, and its subscribers."""
    for topic in sorted({topic for info in network for topic in info.topics or ()}):
        if (subscribers := network.subscribers(topic)).bit_count() > 1:
            yield topic, subscribers


def _carry(logical: Sequence[Logical], node: int, peer: int, topic: int, *, both: bool = True) -> None:
    """A link carries a topic; the other way it does so too, or is only there."""
    logical[node].setdefault(peer, set()).add(topic)
    back = logical[peer].setdefault(node, set())
    if both:
        back.add(topic)


def _from_topics(logical: Sequence[Logical]) -> OverlayModel:
    return OverlayModel([list(others) for others in logical], logical)


_MODELS: dict[str, Callable[[Any, Network, Random], OverlayModel]] = {
    "spidercast": _spidercast,
    "similarity": _similarity,
    "ring-per-topic": _ring_per_topic,
    "stan": _stan,
    "scribe": _scribe,
}
