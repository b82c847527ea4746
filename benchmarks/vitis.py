"""What Vitis's structure costs at best: computed from the interests, without messages, time or failures.

    trellis bench vitis [--nodes N] [--patterns random low high] [--structured 3 15] [--table-size 15] [--topics T]
                        [--bound]

Every node knows all nodes. It links to its ring neighbours, to the nodes closest to its drawn distances, and to the
friends of the highest utility, as ``docs/protocols/vitis.md`` has them; of equal friends, any. Gateways are elected
by Algorithm 5, all nodes at once, until no proposal changes. Messages begin at a random subscriber of each topic and
cross all links equally fast. So these are the figures that a study in the simulator approaches, and they tell which of
the paper's claims follow from its settings. ``rvr``: all links are for routing, and every subscriber is a gateway.

Columns: shared topics of a node and its friends, added up; clusters and gateways per topic; relays per topic; traffic
overhead if each node gets a message once (``once``), and if nodes send copies over all links (``all copies``); hops.

With ``--bound``, the columns ``least`` and ``found`` say what any way of routing over the same links needs if each node
gets a message once: a lower bound of the overhead, and the overhead of a tree that was found. Both ask for the fewest
relays that connect the subscribers, a Steiner tree. The bound is Wong's dual ascent: it raises the price of cuts that
separate a subscriber from the others until a link across each is paid for. No tree is cheaper than the prices.

Source: R. T. Wong, A dual ascent approach for Steiner tree problems on a directed graph, Mathematical Programming 28
(1984); H. Takahashi, A. Matsuyama, An approximate solution for the Steiner problem in graphs, Mathematica Japonica 24
(1980), for the tree that is found.
"""

import argparse
import json
import sys
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.experiment.sections.workload import InterestsSpec
from harness.workload.interests import BucketInterests
from peer.protocols.tman.ring import MASK, SPACE, RingOrder, node_key, topic_key
from peer.protocols.vitis.election import elect
from peer.protocols.vitis.frames import Proposal

NODES_PER_TOPIC = 2
"""10,000 nodes and 5000 topics, as in the paper; with fewer nodes, there are fewer topics of the same popularity."""

PATTERNS = {"random": (1, 1, 50), "low": (100, 5, 10), "high": (100, 2, 25)}
"""Buckets of the paper's 5000 topics, how many of them a node draws, and topics that it takes from each."""

HOPS = 5
CHUNK = 1000

MOST_ROUNDS = 50
"""Most rounds of an election, in case its proposals do not stop changing."""

Links = list[npt.NDArray[np.int64]]


class Cost(NamedTuple):
    """What one topic costs."""

    clusters: int
    gateways: int
    relays: int
    receivers: int
    relayed_copies: int
    copies: int
    hops: float


def main(argv: list[str] | None = None) -> int:
    """Compute and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--patterns", nargs="+", choices=PATTERNS, default=[*PATTERNS])
    parser.add_argument("--structured", nargs="+", type=int, default=[3], help="entries for routing (k)")
    parser.add_argument("--table-size", type=int, default=15)
    parser.add_argument("--topics", type=int, default=100, help="how many topics are looked at")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bound", action="store_true", help="also bound the overhead of any way of routing (slow)")
    given = parser.parse_args(argv)
    rows = {}
    for pattern in given.patterns:
        interests = draw_interests(pattern, given.nodes, given.seed)
        for structured in given.structured:
            links, shared = make_links(interests, given.table_size, structured, given.seed)
            rows[f"vitis {pattern}, k = {structured}"] = {"shared": shared} | measure(interests, links, given)
    links, _ = make_links(interests, given.table_size, given.table_size, given.seed)
    rows["rvr"] = {"shared": 0.0} | measure(interests, links, given, rendezvous=True)
    print(json.dumps(rows) if given.json else show(rows))
    return 0


def show(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Return the rows as a table."""
    names = list(next(iter(rows.values())))
    head = " " * 24 + "".join(f"{name:>12}" for name in names)
    return "\n".join(
        [head, *(f"{row:24}" + "".join(f"{of[name]:12.3f}" for name in names) for row, of in rows.items())]
    )


def draw_interests(pattern: str, nodes: int, seed: int) -> list[tuple[int, ...]]:
    """Return each node's topics. Buckets keep their size with fewer topics."""
    topics = nodes // NODES_PER_TOPIC
    buckets, per_node, per_bucket = PATTERNS[pattern]
    spec = InterestsSpec(
        kind="buckets",
        buckets=max(buckets * topics // 5000, 1),
        buckets_per_node=per_node,
        topics_per_bucket=per_bucket,
    )
    model = BucketInterests(spec, topics, seed)
    return [model.draw(node, 0) for node in range(nodes)]


def make_links(interests: Sequence[tuple[int, ...]], size: int, structured: int, seed: int) -> tuple[Links, float]:
    """Return every node's neighbours, whichever side chose them, and the topics shared with friends per node.

    Args:
        interests: topics by node.
        size: entries of a routing table.
        structured: how many of them are for routing.
        seed: of the long links and of the choice among equal friends.
    """
    nodes = len(interests)
    order = RingOrder(range(nodes))
    place = {node: index for index, node in enumerate(order.nodes)}
    chosen = []
    for node in range(nodes):
        draws = Random(f"{seed}/{node}")
        own = [order.nodes[place[node] - 1], order.nodes[(place[node] + 1) % nodes]]
        for _ in range(structured - 2):
            reach = int(SPACE * nodes ** (draws.random() - 1))
            nearest = order.nearest((node_key(node) + reach) & MASK, {node, *own})
            assert nearest is not None, "there are more nodes than entries"
            own.append(nearest)
        chosen.append(own)
    friends, shared = choose_friends(interests, chosen, size - structured, seed)
    neighbours: list[set[int]] = [set() for _ in interests]
    for node, peers in enumerate(chosen):
        for peer in (*peers, *friends[node]):
            neighbours[node].add(peer)
            neighbours[peer].add(node)
    return [np.array(sorted(peers)) for peers in neighbours], shared


def choose_friends(
    interests: Sequence[tuple[int, ...]], taken: Sequence[Sequence[int]], count: int, seed: int
) -> tuple[list[list[int]], float]:
    """Return the nodes of the highest utility by node, and the topics shared with them per node.

    All nodes have as many topics, so the utility grows with the topics shared (Equation 1).
    """
    nodes = len(interests)
    if not count:
        return [[] for _ in interests], 0.0
    matrix = np.zeros((nodes, max(max(topics) for topics in interests) + 1), np.float32)
    for node, topics in enumerate(interests):
        matrix[node, topics] = 1
    draws = np.random.default_rng(seed)
    friends, shared = [], 0.0
    for first in range(0, nodes, CHUNK):
        common = matrix[first : first + CHUNK] @ matrix.T
        ranked = common + draws.random(common.shape, dtype=np.float32) / 2
        for row, scores in enumerate(ranked):
            scores[[first + row, *taken[first + row]]] = -1
            best = np.argpartition(-scores, count)[:count]
            friends.append(best.tolist())
            shared += float(common[row, best].sum())
    return friends, shared / nodes


def measure(
    interests: Sequence[tuple[int, ...]], links: Links, given: argparse.Namespace, *, rendezvous: bool = False
) -> dict[str, float]:
    """Return the means over some topics."""
    keys = np.array([node_key(node) for node in range(len(links))], np.uint64)
    subscribers: dict[int, list[int]] = {}
    for node, topics in enumerate(interests):
        for topic in topics:
            subscribers.setdefault(topic, []).append(node)
    draws = Random(given.seed)
    looked_at = draws.sample(sorted(subscribers), min(given.topics, len(subscribers)))
    costs = []
    fewest = [0, 0]
    for topic in looked_at:
        ahead = keys - np.uint64(topic_key(topic))  # wraps around, as the ring does
        distances = np.minimum(ahead, -ahead)
        members = set(subscribers[topic])
        publisher = draws.choice(subscribers[topic])
        costs.append(spread(topic, members, publisher, links, distances, rendezvous=rendezvous))
        if given.bound:
            fewest = [fewest[0] + bound_relays(members, links), fewest[1] + find_relays(members, links)]
    total = {name: sum(getattr(cost, name) for cost in costs) for name in Cost._fields}
    others = total["receivers"] - total["relays"]
    bounds = {name: relays / (relays + others) for name, relays in zip(("least", "found"), fewest, strict=True)}
    return {
        "clusters": total["clusters"] / len(costs),
        "gateways": total["gateways"] / len(costs),
        "relays": total["relays"] / len(costs),
        "once": total["relays"] / total["receivers"],
        "all copies": total["relayed_copies"] / total["copies"],
        "hops": total["hops"] / len(costs),
        **(bounds if given.bound else {}),
    }


def bound_relays(members: Collection[int], links: Sequence[Collection[int]]) -> int:
    """Return a lower bound of the relays that connect some nodes over these links: the sum of the prices of cuts.

    To enter a relay costs 1, and to enter a member nothing. A link into a relay is paid for after a cut with it had a
    price. For each cluster in turn, the set of the nodes from which it can be reached over links that are paid for is
    a cut, unless it contains the root.

    Args:
        members: the nodes.
        links: every node's neighbours, whichever side chose them.

    Raises:
        ValueError: the links do not connect the nodes.
    """
    clusters, own = _clusters(members, links), set(members)
    root = clusters[0][0]
    paid: dict[int, set[int]] = {}
    waiting = deque(cluster[0] for cluster in clusters[1:])
    price = 0
    while waiting:
        start = waiting.popleft()
        inside, ahead = {start}, [start]
        while ahead:
            node = ahead.pop()
            sources: Iterable[int] = map(int, links[node]) if node in own else paid.get(node, ())
            fresh = [source for source in sources if source not in inside]
            inside.update(fresh)
            ahead += fresh
        if root in inside:
            continue
        cut = {node: {int(peer) for peer in links[node]} - inside for node in inside - own}
        if not any(cut.values()):
            raise ValueError("the links do not connect the members")
        for node, peers in cut.items():
            paid.setdefault(node, set()).update(peers)
        price += 1
        waiting.append(start)
    return price


def find_relays(members: Collection[int], links: Sequence[Collection[int]]) -> int:
    """Return the relays of a tree that connects some nodes: to the first cluster, it adds the nearest one each time.

    Args:
        members: the nodes.
        links: every node's neighbours; they connect all nodes.
    """
    clusters = _clusters(members, links)
    cluster_of = {node: place for place, cluster in enumerate(clusters) for node in cluster}
    tree = set(clusters[0])
    joined = {0}
    while len(joined) < len(clusters):
        before: dict[int, int] = {node: node for node in tree}
        waiting = deque(tree)
        found: int | None = None
        while found is None:
            node = waiting.popleft()
            for peer in map(int, links[node]):
                if peer not in before:
                    before[peer] = node
                    waiting.append(peer)
                    if cluster_of.get(peer, 0) not in joined:
                        found = peer
                        break
        joined.add(cluster_of[found])
        tree.update(clusters[cluster_of[found]])
        while found not in tree or before[found] not in tree:
            tree.add(found)
            found = before[found]
    return len(tree) - len(members)


def _clusters(members: Collection[int], links: Sequence[Collection[int]]) -> list[list[int]]:
    """Return the members that are connected among themselves, in the order of their first members."""
    own = {node: {int(peer) for peer in links[node] if int(peer) in members} for node in sorted(members)}
    clusters, placed = [], set[int]()
    for node in own:
        if node not in placed:
            cluster = sorted(_within(node, own, len(own)))
            placed.update(cluster)
            clusters.append(cluster)
    return clusters


def spread(
    topic: int, members: set[int], publisher: int, links: Links, distances: npt.NDArray[np.uint64], *, rendezvous: bool
) -> Cost:
    """Send one message from a subscriber to all.

    Args:
        topic: the topic.
        members: its subscribers.
        publisher: one of them.
        links: every node's neighbours.
        distances: of every node to the topic's point.
        rendezvous: every subscriber is a gateway, and messages go along the relay paths only.
    """
    ways: dict[int, set[int]] = {node: set() for node in members}
    if not rendezvous:
        for node in members:
            ways[node].update(peer for peer in links[node].tolist() if peer in members)
    cluster_of = {node: min(_within(node, ways, len(members))) for node in members}
    gateways = members if rendezvous else elect_gateways(topic, ways)
    asked: set[int] = set()
    for gateway in gateways:
        node = gateway
        while node not in asked:
            asked.add(node)
            peers = links[node]
            best = int(peers[np.argmin(distances[peers])])
            if distances[best] >= distances[node]:
                break
            ways.setdefault(node, set()).add(best)
            ways.setdefault(best, set()).add(node)
            node = best
    hops = {publisher: 0}
    sources = {publisher: publisher}
    waiting = deque([publisher])
    relayed = copies = 0
    while waiting:
        node = waiting.popleft()
        for peer in ways[node]:
            if peer == sources[node]:
                continue
            copies += 1
            relayed += peer not in members
            if peer not in hops:
                hops[peer] = hops[node] + 1
                sources[peer] = node
                waiting.append(peer)
    reached = [node for node in members if node != publisher]
    assert all(node in hops for node in reached), "the relay paths connect all clusters"
    relays = len(hops) - len(members)
    mean = sum(hops[node] for node in reached) / max(len(reached), 1)
    return Cost(len({*cluster_of.values()}), len(gateways), relays, len(hops) - 1, relayed, copies, mean)


def elect_gateways(topic: int, mates: Mapping[int, Collection[int]]) -> list[int]:
    """Return the nodes that propose themselves at rest.

    Args:
        topic: the topic.
        mates: each subscriber's neighbours that subscribe to it.
    """
    proposals = {node: Proposal(node, node, 0) for node in mates}
    for _ in range(MOST_ROUNDS):
        before = proposals
        proposals = {
            node: elect(
                node,
                topic,
                {peer: before[peer] for peer in peers},
                most_hops=HOPS,
                failed={},
                parent=before[node].parent,
            )
            for node, peers in mates.items()
        }
        if proposals == before:
            break
    return [node for node, proposal in proposals.items() if proposal.gateway == node]


def _within(start: int, ways: Mapping[int, set[int]], most: int) -> dict[int, int]:
    """Return the nodes within some hops, with their hops."""
    hops = {start: 0}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if hops[node] < most:
            for peer in ways[node]:
                if peer not in hops:
                    hops[peer] = hops[node] + 1
                    waiting.append(peer)
    return hops


if __name__ == "__main__":
    sys.exit(main())
