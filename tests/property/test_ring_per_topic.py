"""Ring per topic and similarity on the pump: the links that each promises, and that the rings close again."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from peer.core.contract import Directory, NodeId, PeerInfo, PeerList, Subscribe, Unsubscribe
from peer.protocols.registry import Composition, compose
from peer.testing import Pump
from tests.examples import examples

SECOND_NS = 1_000_000_000
TOPICS = 4

networks = st.lists(st.sets(st.integers(0, TOPICS - 1)).map(sorted).map(tuple), min_size=2, max_size=12)


def make_pump(interests: list[tuple[int, ...]], **overlay: object) -> Pump:
    parts = Composition(overlay, {"name": "flood", "ttl": 0}, interests="private")
    pump = Pump(
        {node: compose(node, 5, topics, parts) for node, topics in enumerate(interests)},
        lambda source, destination: 10**6 * (1 + (source * 7 + destination * 3) % 50),
    )
    pump.start(dict(enumerate(interests)))
    return pump


def rings(interests: dict[NodeId, set[int]]) -> set[tuple[NodeId, NodeId, int]]:
    """Every (node, neighbour, topic) of rings through the rising subscribers, without any protocol code."""
    edges = set()
    for topic in range(TOPICS):
        ring = [node for node, topics in sorted(interests.items()) if topic in topics]
        for one, other in zip(ring, [*ring[1:], *ring[:1]], strict=True):
            if one != other:
                edges |= {(one, other, topic), (other, one, topic)}
    return edges


def logical(pump: Pump) -> set[tuple[NodeId, NodeId, int]]:
    return {
        (node, peer, topic)
        for node, core in pump.nodes.items()
        for peer, neighbour in core.state.neighbours.items()
        for topic in neighbour.logical
    }


def check(pump: Pump, interests: dict[NodeId, set[int]]) -> None:
    wanted = rings(interests)
    assert logical(pump) == wanted
    assert pump.links() == {(one, other) for one, other, _ in wanted if one < other}


@given(networks)
def test_the_logical_links_are_the_rings_and_nothing_else_is_linked(interests: list[tuple[int, ...]]):
    pump = make_pump(interests, name="ring-per-topic")
    pump.run(3 * SECOND_NS)
    check(pump, {node: set(topics) for node, topics in enumerate(interests)})


@settings(max_examples=examples(50), deadline=None)
@given(networks, st.lists(st.tuples(st.integers(0, 11), st.integers(0, TOPICS - 1)), min_size=1, max_size=6), st.data())
def test_the_rings_close_again_after_changes_of_interest_and_lost_links(
    interests: list[tuple[int, ...]], changes: list[tuple[int, int]], data: st.DataObject
):
    pump = make_pump(interests, name="ring-per-topic")
    pump.run(3 * SECOND_NS)
    wanted = {node: set(topics) for node, topics in enumerate(interests)}
    for node, topic in changes:
        node %= len(wanted)
        pump.give(node, Unsubscribe(topic) if topic in wanted[node] else Subscribe(topic))
        wanted[node] ^= {topic}
        pump.run(SECOND_NS // 5)
        if links := sorted(pump.links()):
            pump.cut(*data.draw(st.sampled_from(links)))
    everybody = Directory(PeerInfo(node, tuple(sorted(topics))) for node, topics in wanted.items())
    for node in wanted:
        pump.give(node, PeerList(everybody))
    pump.run(20 * SECOND_NS)
    check(pump, wanted)


@settings(max_examples=examples(50), deadline=None)
@given(networks, st.integers(0, 4), st.integers(0, 4))
def test_similarity_gives_every_node_its_number_of_links_where_there_are_enough_nodes(
    interests: list[tuple[int, ...]], similar: int, random: int
):
    pump = make_pump(interests, name="similarity", similar=similar, random=random)
    pump.run(40 * SECOND_NS)
    others = len(interests) - 1
    degrees = Counter(node for pair in pump.links() for node in pair)
    for node in range(len(interests)):
        assert degrees[node] >= min(others, max(similar, random))
        assert degrees[node] <= (similar and similar + 5) + (random and random + 5)
