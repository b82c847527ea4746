"""Gossiping memberships over simulated links, whose rules are those of the real pool: refusals, retries, crashes."""

from random import Random

import igraph
import pytest

from harness.simulator.network import SimulatedNetwork
from harness.simulator.simulation import Simulation
from peer.core.contract import Directory, Message, PeerInfo
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.testing import part_of
from peer.trace import TraceEvent
from tests.examples import long_unless
from topologies.network import Network

SECOND_NS = 1_000_000_000
NODES = 60
KINDS = {
    "cyclon": {"name": "cyclon", "view_size": 12, "shuffle_length": 5, "period_s": 1.0},
    "newscast": {"name": "newscast", "cache_size": 12, "period_s": 1.0},
}


class Rejects:
    """An observer that keeps what was refused."""

    frames = False

    def __init__(self) -> None:
        self.rejects: list[TraceEvent] = []

    def trace(self, event: TraceEvent) -> None:
        if event.event == "reject":
            self.rejects.append(event)

    def deliver(self, now_ns: int, node: int, message: Message) -> None:
        """Nothing is published."""


def simulate(membership: dict, loss_ratio: float = 0.0) -> tuple[Simulation, Rejects]:
    """SpiderCast (3, 1) on gossiped views, every frame as bytes, one-way delays of 10 to 60 ms.

    With (3, 0) two cliques of four may make a topic of eight or nine subscribers, all covered and not connected.
    """
    draws = Random(3)
    delays = [[draws.randrange(10, 60) for _ in range(NODES)] for _ in range(NODES)]
    loss = (lambda a, b: loss_ratio) if loss_ratio else None
    observer = Rejects()
    simulation = Simulation(
        SimulatedNetwork(Network(NODES, lambda a, b: delays[a][b], loss_ratio=loss), draws),
        observer,
        seed=1,
        encode=True,
    )
    base = PROTOCOLS["spidercast"].composition
    parts = Composition({**base.overlay, "random_coverage": 1}, base.dissemination, membership, base.interests)
    topics = {node: (node % 7, 7 + node % 5) for node in range(NODES)}
    directory = Directory(PeerInfo(node, topics[node]) for node in topics)
    for node in topics:
        simulation.add_host(node)
    for node in topics:
        simulation.start(node, compose(node, 1, topics[node], parts), directory)
    return simulation, observer


def nodes(simulation: Simulation) -> dict:
    return {number: host.node for number, host in simulation.hosts.items() if host.node is not None}


@pytest.mark.parametrize("loss_ratio", long_unless({0.05}, [0.0, 0.05]))
@pytest.mark.parametrize("kind", KINDS)
def test_links_are_those_of_neighbours_and_of_exchanges_under_way(kind: str, loss_ratio: float):
    simulation, observer = simulate(KINDS[kind], loss_ratio)
    for second in range(10, 40):
        simulation.run(second * SECOND_NS)
        made = nodes(simulation)
        busy = {(number, part_of(node, "membership").partner) for number, node in made.items()}
        for number, host in simulation.hosts.items():
            state = host.node.state
            assert set(host.links) == set(state.neighbours) | state.aside
            assert state.borrowed <= {partner for one, partner in busy if one == number}
            for peer in state.aside:
                # The other side has closed it already, or one of the two is asking over it.
                assert number not in made[peer].state.aside or busy & {(number, peer), (peer, number)}
    # A packet lost twice delays an answer until the exchange has been given up; without loss nothing is late.
    assert {event.reason for event in observer.rejects} <= ({"unasked"} if loss_ratio else set())
    assert len(observer.rejects) < 10
    for topic in range(12):
        subscribers = [number for number, node in made.items() if topic in node.state.topics]
        edges = [(a, b) for a in subscribers for b in made[a].state.neighbours if b in subscribers]
        graph = igraph.Graph(NODES, edges).induced_subgraph(subscribers)
        assert graph.is_connected(), topic


@pytest.mark.parametrize("kind", KINDS)
def test_crashed_nodes_leave_all_views_and_wishes(kind: str):
    simulation, _ = simulate(KINDS[kind])
    simulation.run(20 * SECOND_NS)
    dead = {3, 14, 15, 46}
    for number in sorted(dead):
        simulation.crash(number)
    simulation.run(80 * SECOND_NS)
    for number, node in nodes(simulation).items():
        assert not dead & set(part_of(node, "membership").view)
        assert not dead & (node.state.borrowed | set(simulation.hosts[number].table.wanted))
        assert len(part_of(node, "membership").view) >= 8
