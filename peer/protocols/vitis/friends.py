"""The friends that the nodes of Vitis would find, given enough rounds."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from heapq import nlargest
from itertools import chain

from peer.core.contract import NodeId, TopicId
from peer.protocols.description import Choice, FirstNetwork, Interests
from peer.protocols.tman.contacts import find_ring_contacts
from peer.protocols.tman.ring import PrivateOrder
from peer.protocols.vitis.overlay import VitisParameters
from peer.protocols.vitis.utility import Weights, rate_utility, weights_of


def draw_initial_state(network: FirstNetwork, parameters: VitisParameters) -> list[Choice]:
    """Return the contacts of each node at the start (``PlacedVitisParameters``); none unless the start is converged."""
    interests = network.interests
    if parameters.start == "random":
        return [{}] * len(interests)
    on_ring = find_ring_contacts(len(interests))
    friends = find_friends(interests, parameters.table_size, weights_of(network.rates))
    return [{"contacts": tuple(dict.fromkeys((*ring, *useful)))} for ring, useful in zip(on_ring, friends, strict=True)]


def find_friends(interests: Interests, count: int, weights: Weights) -> list[tuple[NodeId, ...]]:
    """Return, for each node, the ``count`` other nodes with the highest utility.

    Each node orders equally useful nodes in its own way, as in the selection of its routing table.

    Args:
        interests: the topics of every node.
        count: the number of friends.
        weights: the weights of the topics.
    """
    subscribers: dict[TopicId, list[NodeId]] = {}
    for node, topics in enumerate(interests):
        for topic in topics:
            subscribers.setdefault(topic, []).append(node)
    whole = [weights[frozenset(topics)][1] for topics in interests]
    return [
        _choose_friends(node, _share(topics, subscribers, weights.rates), whole, count)
        for node, topics in enumerate(interests)
    ]


def _share(
    topics: Sequence[TopicId], subscribers: Mapping[TopicId, list[NodeId]], rates: Sequence[float] | None
) -> Mapping[NodeId, float]:
    """Return the rate of the shared topics for each node that shares any.

    Args:
        topics: the topics of one node.
        subscribers: the subscribers of each topic.
        rates: relative rates of the topics; None = all are 1.
    """
    if rates is None:
        return Counter(chain.from_iterable(subscribers[topic] for topic in topics))
    shared: defaultdict[NodeId, float] = defaultdict(float)
    for topic in topics:
        if topic < len(rates):
            for node in subscribers[topic]:
                shared[node] += rates[topic]
    return shared


def _choose_friends(
    own: NodeId, shared: Mapping[NodeId, float], weights: Sequence[float], count: int
) -> tuple[NodeId, ...]:
    weight, place = weights[own], PrivateOrder(own).place
    useful = {
        node: rate_utility(rate, weight, weights[node]) for node, rate in shared.items() if rate > 0 and node != own
    }
    least = min(nlargest(count, useful.values()), default=0.0)
    ranked = sorted((-utility, place(node), node) for node, utility in useful.items() if utility >= least)
    return tuple(node for _, _, node in ranked[:count])
