"""What adversaries that ask have concluded of others' subscriptions, against what is true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

NodeSet = int
"""Bit i is set for node i."""


class Disclosure(NamedTuple):
    """What one asker reached.

    Attributes:
        node: the asker.
        subscriptions: (node, topic) pairs, the topic being one to which the asker never subscribed and the node an
            honest one that did so at some time.
        disclosed: those of them that it concluded.
        wrong: what it concluded of such topics and honest nodes that is not so.
    """

    node: int
    subscriptions: int
    disclosed: int
    wrong: int


def measure_disclosure(
    concluded: Mapping[int, Mapping[int, NodeSet]], subscribers: Mapping[int, NodeSet], adversaries: Iterable[int]
) -> list[Disclosure]:
    """An entry for each asker, by its number.

    Args:
        concluded: asker to topic to the nodes of which it concluded that they subscribe; one that concluded nothing
            has an entry without topics.
        subscribers: topic to the nodes that subscribed at any time.
        adversaries: all nodes that misbehave.
    """
    bad = sum(1 << node for node in {*adversaries})
    found = []
    for asker, topics in sorted(concluded.items()):
        foreign = [topic for topic in {*topics, *subscribers} if not subscribers.get(topic, 0) >> asker & 1]
        true = {topic: subscribers.get(topic, 0) & ~bad for topic in foreign}
        said = {topic: topics.get(topic, 0) & ~bad for topic in foreign}
        found.append(
            Disclosure(
                asker,
                sum(nodes.bit_count() for nodes in true.values()),
                sum((said[topic] & true[topic]).bit_count() for topic in foreign),
                sum((said[topic] & ~true[topic]).bit_count() for topic in foreign),
            )
        )
    return found


def disclosed_ratio(found: Iterable[Disclosure]) -> float | None:
    """The share of the subscriptions that is disclosed, over all askers together (0..1); None where there are none."""
    rows = list(found)
    total = sum(row.subscriptions for row in rows)
    return sum(row.disclosed for row in rows) / total if total else None
