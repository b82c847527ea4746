"""Every topic's overlay: its subscribers and the links between them."""

from typing import NamedTuple

import numpy as np

from metrics.overlay.graph import component_sizes
from metrics.overlay.paths import shortest_paths
from metrics.overlay.snapshot import Integers, Snapshot


class TopicOverlay(NamedTuple):
    """A topic's overlay.

    Source: SpiderCast section 2 (topic-connected overlays); StAN section 3 (strongly connected ones).
    """

    topic: int  # its number
    subscribers: int  # how many nodes subscribe
    links: int  # physical links between two of them
    components: int  # sets of subscribers that reach each other over these links; 1 = the topic is connected
    largest_component: int  # subscribers in the largest component
    diameter: int  # longest shortest path over these links, within a component
    view_links: int  # logical links of the topic from one subscriber to another
    view_components: int  # sets of subscribers that reach each other, both ways, over these one-way links


def measure_topics(snapshot: Snapshot, *, diameters: bool = True) -> list[TopicOverlay]:
    """Measure the overlay of every topic that has a subscriber, by rising topic; exact.

    Args:
        snapshot: the overlay.
        diameters: whether to compute diameters, which take most of the time; otherwise they are 0.
    """
    subscriptions = snapshot.interests[np.argsort(snapshot.interests[:, 1], kind="stable")]
    views = snapshot.views[np.argsort(snapshot.views[:, 2], kind="stable")]
    topics, starts = np.unique(subscriptions[:, 1], return_index=True)
    first, last = (np.searchsorted(views[:, 2], topics, side) for side in ("left", "right"))
    place = np.full(snapshot.count, -1)
    found = []
    for index, members in enumerate(np.split(subscriptions[:, 0], starts[1:]) if len(topics) else ()):
        place[members] = np.arange(len(members))
        links = _among(place, snapshot.links)
        arcs = _among(place, views[first[index] : last[index], :2])
        found.append(_measure(int(topics[index]), len(members), links, arcs, diameters))
        place[members] = -1
    return found


def _among(place: Integers, pairs: Integers) -> Integers:
    """Return the pairs of two subscribers, by their places among the subscribers."""
    placed = place[pairs]
    return placed[(placed >= 0).all(axis=1)]


def _measure(topic: int, subscribers: int, links: Integers, arcs: Integers, diameters: bool) -> TopicOverlay:
    sizes = component_sizes(subscribers, links)
    return TopicOverlay(
        topic,
        subscribers,
        len(links),
        len(sizes),
        max(sizes),
        shortest_paths(subscribers, links).diameter if diameters else 0,
        len(arcs),
        len(component_sizes(subscribers, arcs, strong=True)),
    )
