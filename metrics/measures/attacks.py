"""Measures of nodes that misbehave on purpose: what they receive, hold and conclude."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from metrics.measures.deliveries import Deliveries
from metrics.measures.measure import Family, Values, count_values, ratio

NodeSet = int
"""A set of nodes: bit i is set for node i."""


class Disclosure(NamedTuple):
    """What one adversary that asks has found out."""

    node: int  # the adversary
    subscriptions: int  # (node, topic) pairs of honest nodes, at any time, without topics that the adversary had
    disclosed: int  # such subscriptions that it concluded
    wrong: int  # other conclusions about such topics and honest nodes


def measure_disclosure(
    concluded: Mapping[int, Mapping[int, NodeSet]], subscribers: Mapping[int, NodeSet], adversaries: Iterable[int]
) -> list[Disclosure]:
    """Return an entry for each adversary that asks, by its number.

    Args:
        concluded: adversary to topic to the nodes of which it concluded that they subscribe; an adversary without
            conclusions has an entry without topics.
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


DISCLOSURE = Family[Sequence[Disclosure]]("adversaries that ask")
DISCLOSURE.add(
    "disclosure_ratio",
    "ratio",
    "share of honest nodes' subscriptions, to topics that the asker never subscribed to, that the asker inferred",
    lambda it: ratio(sum(each.disclosed for each in it), sum(each.subscriptions for each in it)),
)


class Slots(NamedTuple):
    """The links that honest nodes chose themselves; for each node, the entries of its routing table."""

    to_adversaries: int  # links that lead to adversaries
    of_nodes: Values  # links of each honest node


SLOTS = Family[Slots]("nodes' links (snapshots)", "snapshot")
SLOTS.add(
    "adversary_slots_ratio",
    "ratio",
    "share of honest nodes' own links that lead to adversaries",
    lambda it: ratio(it.to_adversaries, int(it.of_nodes.sum())),
)
SLOTS.add_statistics(
    "own_links", "links", "links of a node's own choice (routing table)", lambda it: it.of_nodes, "mean", "max", "p99"
)
SLOTS.add(
    "own_degrees", "nodes", "nodes by the links of their own choice", lambda it: count_values(it.of_nodes), "degree"
)


class Attack(NamedTuple):
    """How many nodes misbehave, and the deliveries at these nodes."""

    adversaries: int
    deliveries: Deliveries


ATTACK = Family[Attack]("adversaries")
ATTACK.add("adversaries", "nodes", "nodes that misbehave on purpose", lambda it: it.adversaries)
ATTACK.add(
    "adversaries_delivery_ratio",
    "ratio",
    "delivery ratio of the adversaries",
    lambda it: ratio(it.deliveries.delivered, it.deliveries.known),
)
