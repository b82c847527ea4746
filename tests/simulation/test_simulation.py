"""The simulated hosts keep the rules of the real pool, and a simulation is the same under any PYTHONHASHSEED."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.simulator.network import SimulatedNetwork
from harness.simulator.simulation import Simulation
from peer.core.contract import Directory, Message, PeerInfo, Publish, message_id
from peer.core.frames import Hello
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.testing import outputs_under_hash_seeds
from peer.trace import TraceEvent
from tests.examples import examples
from topologies.network import Network, uniform_network

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000


class Record:
    """An observer that keeps everything."""

    frames = True

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self.delivered: list[tuple[int, int, Message]] = []

    def trace(self, event: TraceEvent) -> None:
        self.events.append(event)

    def deliver(self, now_ns: int, node: int, message: Message) -> None:
        self.delivered.append((now_ns, node, message))


def uniform(delay_ms: float, seed: int) -> SimulatedNetwork:
    return SimulatedNetwork(uniform_network(100, delay_ms), Random(seed))


def simulate(
    nodes: int, overlay: dict, network: SimulatedNetwork, *, seed: int = 1, encode: bool = False, ttl: int = 255
):
    record = Record()
    simulation = Simulation(network, record, seed=seed, encode=encode)
    start(simulation, nodes, overlay, seed, ttl)
    return simulation, record


def start(simulation: Simulation, nodes: int, overlay: dict, seed: int = 1, ttl: int = 255) -> None:
    directory = Directory(PeerInfo(node) for node in range(nodes))
    parts = Composition(overlay, {"name": "flood", "ttl": ttl})
    for node in range(nodes):
        simulation.add_host(node)
    for node in range(nodes):
        simulation.start(node, compose(node, seed, (0,), parts), directory)


def links(simulation: Simulation) -> set[tuple[int, int]]:
    return {(number, peer) for number, host in simulation.hosts.items() for peer in host.links}


@given(
    nodes=st.integers(2, 12),
    degree=st.integers(1, 6),
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0, 0.2]),
    rate=st.sampled_from([None, 0.1]),
)
@settings(max_examples=examples(40))
def test_both_ends_agree_on_every_link_and_every_frame_arrives_in_order(nodes, degree, seed, loss, rate):
    draws = Random(seed)
    delays = {(a, b): draws.randrange(1, 300) for a in range(nodes) for b in range(nodes)}
    network = Network(
        nodes,
        lambda a, b: delays[a, b],
        jitter_ms=lambda a, b: 20,
        loss_ratio=(lambda a, b: loss) if loss else None,
        rate_mbit=[rate] * 2 * nodes if rate else (),
    )
    network = SimulatedNetwork(network, draws)
    simulation, record = simulate(nodes, {"name": "random", "degree": degree}, network, seed=seed)
    simulation.run(30 * SECOND_NS)
    up = links(simulation)
    assert up == {(b, a) for a, b in up}
    assert all(len(host.links) >= min(degree, nodes - 1) for host in simulation.hosts.values())
    for publisher in range(nodes):
        simulation.give(publisher, Publish((0,), message_id(publisher, 0), b"payload"))
    simulation.run(60 * SECOND_NS)
    simulation.quiesce()
    simulation.close()
    simulation.run(600 * SECOND_NS)  # a frame that is lost often comes minutes late
    assert not links(simulation)
    assert all(not host.table.pending for host in simulation.hosts.values())
    sent, received = (
        {(e.conn, e.direction, e.off, e.len_bytes, e.kind) for e in record.events if e.event == name}
        for name in ("send", "receive")
    )
    assert sent == received
    offsets: dict[tuple, int] = {}
    for event in record.events:
        if event.event == "receive":
            assert event.off == offsets.get((event.conn, event.direction), 0)
            offsets[event.conn, event.direction] = event.off + event.len_bytes


def test_two_nodes_that_open_at_once_share_the_link_that_the_lower_one_opened():
    simulation, record = simulate(2, {"name": "random", "degree": 1}, uniform(50, 1))
    simulation.run(SECOND_NS * 5)
    assert links(simulation) == {(0, 1), (1, 0)}
    ups = [event for event in record.events if event.event == "add_peer"]
    assert {(event.node, event.direction) for event in ups} == {(0, "orig"), (1, "resp")}
    refused = [e for e in record.events if e.event == "send" and e.kind == 2]
    assert [event.node for event in refused] == [0]


@pytest.mark.parametrize("how", ["leave", "crash"])
def test_a_hello_that_waits_to_be_processed_does_not_reach_the_next_instance(how):
    network = uniform(10, 1)
    simulation = Simulation(network, Record(), seed=1, processing_ns=lambda node: 100 * MILLISECOND_NS)
    overlay = {"name": "complete"}
    start(simulation, 2, overlay)
    simulation.run(50 * MILLISECOND_NS)  # node 0 has opened a connection and said hello
    getattr(simulation, how)(1)
    node = compose(1, 2, (0,), Composition(overlay, {"name": "flood"}))
    simulation.start(1, node, Directory([PeerInfo(0), PeerInfo(1)]), joins=True)
    simulation.run(60 * SECOND_NS)
    assert links(simulation) == {(0, 1), (1, 0)}
    assert simulation.hosts[1].links[0].instance is node


def test_a_connection_waits_5_s_for_the_end_of_a_live_link_and_a_second_one_not_at_all():
    simulation, record = simulate(2, {"name": "complete"}, uniform(10, 1))
    simulation.run(SECOND_NS)
    knocks = [simulation.join(simulation.hosts[0], 1, simulation.hosts[1].node) for _ in range(3)]
    for knock in knocks[:2]:
        simulation.write(knock, Hello(0, simulation.run_number))
    simulation.run(8 * SECOND_NS)
    simulation.write(knocks[2], Hello(0, simulation.run_number))
    simulation.run(10 * SECOND_NS)
    simulation.hosts[1].lose(knocks[2].other)  # its sender gives up, and need not be refused any more
    simulation.run(20 * SECOND_NS)
    rejects = [
        (event.ts_ns - SECOND_NS, event.node, event.reason) for event in record.events if event.event == "reject"
    ]
    assert rejects == [
        (at_ns, 1, "already_linked") for at_ns in (10 * MILLISECOND_NS, 5 * SECOND_NS + 10 * MILLISECOND_NS)
    ]
    assert [knock.reason for knock in knocks[:2]] == ["already_linked"] * 2
    assert links(simulation) == {(0, 1), (1, 0)}


def test_a_connection_that_waits_is_taken_when_the_old_link_ends():
    simulation, record = simulate(2, {"name": "complete"}, uniform(10, 1))
    simulation.run(SECOND_NS)
    old = simulation.hosts[1].links[0]
    simulation.hosts[0].table.peer_closed(old.other, "lost")  # its goodbye is lost
    simulation.hosts[0].table.connect(1)
    simulation.run(3 * SECOND_NS)
    assert simulation.hosts[1].links[0] is old
    simulation.hosts[1].lose(old)
    simulation.run(10 * SECOND_NS)
    assert links(simulation) == {(0, 1), (1, 0)}
    assert simulation.hosts[1].links[0] is not old
    assert not [event for event in record.events if event.event == "reject"]


def test_a_link_takes_the_round_trips_of_a_real_one():
    simulation, record = simulate(2, {"name": "complete"}, uniform(50, 1))
    simulation.run(SECOND_NS)
    ups = {event.node: event.ts_ns for event in record.events if event.event == "add_peer"}
    assert ups == {1: 150 * MILLISECOND_NS, 0: 200 * MILLISECOND_NS}


def test_a_crashed_node_is_missed_and_a_node_that_left_is_forgotten():
    simulation, record = simulate(3, {"name": "complete"}, uniform(10, 1))
    simulation.run(SECOND_NS)
    simulation.crash(2)
    simulation.leave(1)
    simulation.run(2 * SECOND_NS)
    assert links(simulation) == set()
    reasons = {(e.node, e.peer): e.reason for e in record.events if e.event == "remove_peer"}
    assert reasons[0, 2] == "ConnectionResetError"
    assert reasons[0, 1] == "left"


def test_an_access_rate_holds_frames_up():
    payload = b"x" * 12_448  # nine packets
    network = SimulatedNetwork(Network(2, lambda a, b: 0, rate_mbit=[1.0] * 4), Random(1))
    simulation, record = simulate(2, {"name": "complete"}, network)
    simulation.run(SECOND_NS)
    start_ns = simulation.now_ns
    simulation.give(0, Publish((0,), message_id(0, 0), payload))
    simulation.run(10 * SECOND_NS)
    at_ns = next(at for at, node, _ in record.delivered if node == 1)
    size = next(e.len_bytes for e in record.events if e.kind == 16 and e.event == "send")
    wire_ns = (size + 9 * 52) * 8 * 1000
    assert (
        at_ns - start_ns == wire_ns + 1500 * 8 * 1000
    )  # up one link; a packet follows the one before it down the other


def test_a_receivers_access_link_serves_in_the_order_of_arrival():
    """A near node's message does not wait for a far one's that was sent before and is still on its way."""
    far_ns, near_ns = SECOND_NS // 5, SECOND_NS // 1000
    delays_ns = {frozenset({0, 2}): far_ns, frozenset({1, 2}): near_ns, frozenset({0, 1}): far_ns}
    network = SimulatedNetwork(
        Network(3, lambda a, b: delays_ns[frozenset({a, b})] / 1e6, rate_mbit=[10.0] * 6), Random(1)
    )
    simulation, record = simulate(3, {"name": "complete"}, network)
    simulation.run(2 * SECOND_NS)
    start_ns = simulation.now_ns
    for node in (0, 1):
        simulation.give(node, Publish((0,), message_id(node, 0), b"x" * 1000))
    simulation.run(4 * SECOND_NS)
    came_ns = {message.message_id: at - start_ns for at, node, message in record.delivered if node == 2}
    frame_ns = 1000 * 8 * 100  # at 10 Mbit/s; headers come on top
    assert near_ns + 2 * frame_ns < came_ns[message_id(1, 0)] < near_ns + 4 * frame_ns
    assert far_ns < came_ns[message_id(0, 0)] < far_ns + 5 * frame_ns


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("given", [{"rate_mbit": [1.0] * 4}, {"jitter_ms": lambda a, b: 10}, {}])
def test_what_was_sent_before_a_crash_arrives(given: dict, seed: int):
    network = SimulatedNetwork(Network(2, lambda a, b: 50, **given), Random(seed))
    simulation, record = simulate(2, {"name": "complete"}, network, seed=seed)
    simulation.run(2 * SECOND_NS)
    simulation.give(0, Publish((0,), message_id(0, 0), b"x" * 10_000))
    simulation.run(2 * SECOND_NS + 100 * MILLISECOND_NS * ("rate_mbit" in given) + MILLISECOND_NS)
    simulation.crash(0)
    simulation.run(4 * SECOND_NS)
    assert [node for _, node, _ in record.delivered] == [0, 1]
    assert not links(simulation), "and then the other side hears of the crash"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_encoding_changes_nothing(protocol):
    records = []
    for encode in (False, True):
        record = Record()
        simulation = Simulation(uniform(50, 1), record, seed=1, encode=encode)
        directory = Directory(PeerInfo(node, (0,)) for node in range(20))
        for node in range(20):
            simulation.add_host(node)
        for node in range(20):
            simulation.start(node, compose(node, 1, (0,), PROTOCOLS[protocol].composition), directory)
        simulation.run(5 * SECOND_NS)
        simulation.give(3, Publish((0,), message_id(3, 0), b"abc"))
        simulation.run(8 * SECOND_NS)
        records.append(record)
    plain, encoded = records
    assert plain.events == encoded.events
    assert plain.events
    assert plain.delivered == encoded.delivered


SCRIPT = """
import hashlib, msgspec
from random import Random
from tests.simulation.test_simulation import simulate, uniform
from peer.core.contract import Publish, message_id
simulation, record = simulate(40, {"name": "random", "degree": 4}, uniform(20, 5), seed=9)
simulation.run(10**9)
for node in range(40):
    simulation.give(node, Publish((0,), message_id(node, 0), b"x"))
simulation.crash(7); simulation.leave(9)
simulation.run(5 * 10**9)
print(hashlib.sha256(msgspec.json.encode(record.events)).hexdigest())
"""


def test_the_trace_does_not_depend_on_the_hash_seed():
    [digest] = outputs_under_hash_seeds(SCRIPT)
    assert len(digest.strip()) == 64
