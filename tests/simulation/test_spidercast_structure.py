"""SpiderCast's graph against its baselines' at a few hundred nodes, with the paper's workload."""

from random import Random

import igraph

from peer.core.contract import Send
from peer.protocols.registry import Composition, compose
from peer.protocols.spidercast.frames import SpiderHeartbeat
from peer.testing import Pump

SECOND_NS = 1_000_000_000
NODES, TOPICS, SUBSCRIPTIONS = 250, 100, 10


def draw_interests() -> dict[int, tuple[int, ...]]:
    """Ten topics a node, drawn without replacement by Zipf weights with exponent 0.5."""
    draws = Random(1)
    weights = [1 / (rank + 1) ** 0.5 for rank in range(TOPICS)]

    def draw() -> tuple[int, ...]:
        # The largest of u ** (1 / weight) are a weighted sample without replacement (Efraimidis and Spirakis).
        keys = {topic: draws.random() ** (1 / weight) for topic, weight in enumerate(weights)}
        return tuple(sorted(sorted(keys, key=keys.__getitem__)[-SUBSCRIPTIONS:]))

    return {node: draw() for node in range(NODES)}


def build(**overlay: object) -> tuple[Pump, igraph.Graph, int]:
    """The pump and the graph of links after 20 s, and the number of topics whose subscribers are connected."""
    interests = draw_interests()
    parts = Composition(overlay, {"name": "flood", "ttl": 0}, interests="private")
    pump = Pump({node: compose(node, 1, topics, parts) for node, topics in interests.items()})
    pump.start(interests)
    pump.run(20 * SECOND_NS)
    graph = igraph.Graph(NODES, sorted(pump.links()))
    subscribers = [[node for node, topics in interests.items() if topic in topics] for topic in range(TOPICS)]
    connected = sum(graph.induced_subgraph(nodes).is_connected() for nodes in subscribers)
    return pump, graph, connected


def mean_degree(graph: igraph.Graph) -> float:
    return 2 * graph.ecount() / graph.vcount()


def test_spidercast_connects_every_topic_with_fewer_links_than_rings_and_others_do_not():
    pump, graph, connected = build(name="spidercast")
    assert connected == TOPICS
    control = sum(isinstance(e, Send) and not isinstance(e.frame, SpiderHeartbeat) for _, _, e in pump.effects)
    assert control < 4 * graph.ecount()  # two to build a link, and now and then one to ask whether it is needed
    for node, core in pump.nodes.items():
        for topic in core.state.topics:
            assert sum(topic in neighbour.forwards for neighbour in core.state.neighbours.values()) >= 3, (node, topic)
    _, rings, connected = build(name="ring-per-topic")
    assert connected == TOPICS
    assert mean_degree(graph) < 0.9 * mean_degree(rings)
    _, similar, connected = build(name="similarity", similar=round(mean_degree(graph)))
    assert mean_degree(similar) >= mean_degree(graph) - 1
    assert connected < TOPICS
    _, _, connected = build(name="similarity", similar=0, random=round(mean_degree(graph)))
    assert connected < TOPICS / 2
