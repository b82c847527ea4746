"""The nodes that the nodes of OPT would find, given enough rounds."""

from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from itertools import chain

from peer.core.contract import NodeId, TopicId
from peer.core.randomness import substream
from peer.protocols.description import Choice, FirstNetwork
from peer.protocols.opt.overlay import OptParameters
from peer.protocols.tman.ring import PrivateOrder

USEFUL = 100
"""Most nodes that a node knows for the topics that they share with it. If many nodes are refused by the same ones, each
has others to try."""


def draw_initial_state(network: FirstNetwork, parameters: OptParameters) -> list[Choice]:
    """Return the contacts of each node at the start (``PlacedOptParameters``); none unless the start is converged."""
    interests = network.interests
    if parameters.start == "random":
        return [{}] * len(interests)
    subscribers: dict[TopicId, list[NodeId]] = {}
    for node, topics in enumerate(interests):
        for topic in topics:
            subscribers.setdefault(topic, []).append(node)
    wanted = parameters.greedy_coverage + parameters.random_coverage
    found = []
    for node, topics in enumerate(interests):
        draws = substream(network.seed, node, "contacts")
        each = [subscribers[topic] for topic in topics]
        random = chain.from_iterable(draws.sample(nodes, min(wanted + 1, len(nodes))) for nodes in each)
        known = dict.fromkeys((*_find_useful(node, each), *random))
        known.pop(node, None)
        found.append({"contacts": tuple(known)})
    return found


def _find_useful(own: NodeId, subscribers: Sequence[list[NodeId]]) -> list[NodeId]:
    """Return the nodes that share the most topics with a node, of equally many the first in the node's own order.

    Args:
        own: the node.
        subscribers: the subscribers of each of its topics.
    """
    shared = Counter(chain.from_iterable(subscribers))
    shared.pop(own, None)
    place = PrivateOrder(own).place
    least = min(nlargest(USEFUL, shared.values()), default=0)
    ranked = sorted((-count, place(node), node) for node, count in shared.items() if count >= least)
    return [node for _, _, node in ranked[:USEFUL]]
