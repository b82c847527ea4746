"""The overlays with which StAN begins: one random directed graph per topic, strongly connected.

Source: StAN sections 2 and 3 (Erdos-Renyi, average degree logarithmic in the topic's size).
"""

import math
from random import Random

from peer.core.bitset import bitset
from peer.core.randomness import NETWORK, substream
from peer.protocols.description import Choice, FirstNetwork, Interests, ParameterError
from peer.protocols.stan.parameters import StanParameters

MAX_DRAWS = 1_000
"""Most graphs that are drawn for a topic."""

Views = dict[int, list[int]]
"""node -> the nodes in its view of one topic, in rising order."""

OfTopics = list[tuple[int, list[int]]]
"""(topic, nodes), in rising order."""


def draw_initial_state(network: FirstNetwork, parameters: StanParameters) -> list[Choice]:
    """Return the initial views of each node, and the lists of its topics' subscribers (``PlacedStanParameters``).

    Raises:
        ParameterError: no strongly connected graph was drawn for a topic.
    """
    views = draw_views(network.interests, parameters.degree_factor, network.seed)
    return [{"views": own, "members": lists} for own, lists in zip(views, list_members(views), strict=True)]


def draw_views(interests: Interests, degree_factor: float, seed: int) -> list[OfTopics]:
    """Return the initial views of every node, as (topic, nodes) in the order of the topics.

    Args:
        interests: the topics of every node.
        degree_factor: mean size of a view, divided by the natural logarithm of the number of the topic's subscribers.
        seed: the seed of the run.

    Raises:
        ParameterError: no strongly connected graph was drawn for a topic.
    """
    subscribers: dict[int, list[int]] = {}
    for node, topics in enumerate(interests):
        for topic in topics:
            subscribers.setdefault(topic, []).append(node)
    views: list[OfTopics] = [[] for _ in interests]
    for topic in sorted(subscribers):
        drawn = draw_topic(subscribers[topic], degree_factor, substream(seed, NETWORK, f"views/{topic}"), topic)
        for node, view in drawn.items():
            views[node].append((topic, view))
    return views


def list_members(views: list[OfTopics]) -> list[list[tuple[int, str]]]:
    """Return the subscribers of each node's topics, as (topic, hexadecimal digits of a bitset)."""
    subscribers: dict[int, list[int]] = {}
    for node, own in enumerate(views):
        for topic, _ in own:
            subscribers.setdefault(topic, []).append(node)
    digits = {topic: f"{bitset(nodes):x}" for topic, nodes in subscribers.items()}
    return [[(topic, digits[topic]) for topic, _ in own] for own in views]


def draw_topic(members: list[int], degree_factor: float, draws: Random, topic: int) -> Views:
    """Draw a strongly connected Erdos-Renyi graph: each ordered pair is linked with the same probability.

    Args:
        members: the topic's subscribers, in rising order.
        degree_factor: as in ``draw_views``.
        draws: the generator.
        topic: the topic, for the error.

    Raises:
        ParameterError: no such graph was drawn in ``MAX_DRAWS`` attempts.
    """
    size = len(members)
    if size < 2:
        return {node: [] for node in members}
    probability = min(1.0, degree_factor * math.log(size) / (size - 1)) if size > 2 else 1.0
    for _ in range(MAX_DRAWS):
        views = {node: _draw_view(members, own, probability, draws) for own, node in enumerate(members)}
        if is_strongly_connected(views):
            return views
    raise ParameterError(
        "degree_factor", f"no strongly connected graph in {MAX_DRAWS} draws for topic {topic} with {size} subscribers"
    )


def _draw_view(members: list[int], own: int, probability: float, draws: Random) -> list[int]:
    """Draw the view of one node. It jumps from one linked node to the next, so the cost grows with the links only.

    ``own``: the index of the node in ``members``. Indices from there on mean the next member.
    """
    if probability >= 1.0:
        return members[:own] + members[own + 1 :]
    view, place = [], -1
    scale = math.log(1.0 - probability)
    while (place := place + 1 + int(math.log(1.0 - draws.random()) / scale)) < len(members) - 1:
        view.append(members[place + (place >= own)])
    return view


def is_strongly_connected(views: Views) -> bool:
    """Return whether every node reaches every other node along the views."""
    reversed_views: Views = {node: [] for node in views}
    for node, view in views.items():
        for other in view:
            reversed_views[other].append(node)
    return all(_reach(graph) == len(views) for graph in (views, reversed_views))


def _reach(graph: Views) -> int:
    first = next(iter(graph))
    seen, frontier = {first}, [first]
    while frontier:
        for other in graph[frontier.pop()]:
            if other not in seen:
                seen.add(other)
                frontier.append(other)
    return len(seen)
