"""Which nodes programs are told to connect to."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peer.core.directory import Directory, PeerInfo
from peer.instances.spec import NodeSpec, OverlayDocument
from peer.protocols.registry import Composition, compose
from peer.runtime.connections import Connections
from peer.testing import Solo, connects


def document(nodes: int, seed: int, down: frozenset[int] = frozenset()) -> OverlayDocument:
    specs = tuple(
        NodeSpec(node, seed, (), {"name": "complete"}, {"name": "flood"}, up=node not in down) for node in range(nodes)
    )
    return OverlayDocument(1, "complete", specs)


def directory(nodes: set[int]) -> Directory:
    return Directory(PeerInfo(node) for node in nodes)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 9), st.frozensets(st.integers(0, 11), max_size=4))
def test_each_pair_is_told_once_and_each_node_has_its_connections(
    nodes: int, degree: int, seed: int, down: frozenset[int]
):
    overlay = document(nodes, seed, down)
    up = set(range(nodes)) - down
    connections = {node: Connections(overlay, node, degree) for node in up}
    pairs = [(node, peer) for node in up for peer in connections[node].begin()]
    assert all(node != peer and peer in up for node, peer in pairs)
    assert max(Counter(frozenset(pair) for pair in pairs).values(), default=1) == 1
    links = Counter(end for pair in pairs for end in pair)
    assert all(links[node] >= min(degree, len(up) - 1) for node in up)
    assert pairs == [(node, peer) for node in up for peer in Connections(overlay, node, degree).begin()]


@pytest.mark.parametrize(
    "parts",
    [
        Composition({"name": "random", "degree": 3}),
        Composition({"name": "gossipsub", "connections": 3, "discovery": "random"}, interests="announced-only"),
    ],
    ids=lambda parts: parts.overlay["name"],
)
@given(nodes=st.integers(1, 12), seed=st.integers(0, 9))
def test_programs_have_the_connections_of_a_protocol_with_random_links(parts: Composition, nodes: int, seed: int):
    plan = document(nodes, seed)
    told = {frozenset((node, peer)) for node in range(nodes) for peer in Connections(plan, node, 3).begin()}
    opened = set()
    for node in range(nodes):
        solo = Solo(compose(node, seed, (0,), parts))
        opened |= {frozenset((node, peer)) for peer in connects(solo.start(dict.fromkeys(range(nodes), (0,))))}
    assert told == opened


def test_a_node_replaces_those_that_have_left_and_no_others():
    connections = Connections(document(9, 3), 0, 3)
    first = connections.update(directory(set(range(9))))
    assert len(set(first)) == 3
    assert connections.update(directory(set(range(9)))) == []
    [fresh] = connections.update(directory(set(range(9)) - {first[0]}))
    assert fresh not in first
    connections.forget()
    assert len(connections.update(directory({0, 1, 2}))) == 2
