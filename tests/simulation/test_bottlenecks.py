"""Bottlenecks in the simulator: against queues written by hand, the data plane, and the order of streams."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.simulator.access import FULL_BYTES, HEADER_BYTES
from harness.simulator.changes import simulate_network
from harness.simulator.network import SimulatedNetwork
from harness.simulator.simulation import Simulation
from peer import wire
from peer.core.contract import Publish, message_id
from peer.core.frames import Data
from peer.wire import MSS_BYTES
from tests.examples import examples
from tests.property.test_dataplane_bottlenecks import DELAYS_MS, bench_of, chain, forward, play
from tests.property.test_dataplane_forwarder import HOSTS, MS_NS
from tests.simulation.test_simulation import SECOND_NS, Record, links, simulate
from topologies.bottlenecks import Bottlenecks
from topologies.network import Network
from topologies.timeline import Change

UNLIMITED = (0.0, 0.0)
ENDLESS_MS = 1e6
ENDS = [(one, other) for one in range(HOSTS) for other in range(HOSTS) if one != other]

rates = st.sampled_from([0.0, 0.5, 4.0])
packets = st.lists(
    st.tuples(
        st.integers(0, 4000).map(lambda us: us * 1000 + 1),  # no two packets reach a queue at the same instant
        st.integers(0, HOSTS - 1),
        st.integers(1, HOSTS - 1),
        st.integers(400, MSS_BYTES + HEADER_BYTES),
    ),
    max_size=60,
)


def frame_of(size: int) -> Data:
    """Return a frame of this length in bytes."""
    around = wire.size(Data(0, (0,), 1, 1, b"x" * size)) - size
    frame = Data(0, (0,), 1, 1, b"x" * (size - around))
    assert wire.size(frame) == size
    return frame


def delay_ms(one: int, other: int) -> float:
    return sum(DELAYS_MS[min(one, other) : max(one, other)])


class Bed:
    """Hosts 0, 1 and 2 in a row, with connections between all of them and no nodes."""

    def __init__(self, first_mbit: float, second_mbit: float, *changes: Change, **values: object) -> None:
        bottlenecks = chain((first_mbit, ENDLESS_MS), (second_mbit, ENDLESS_MS))
        network = Network(
            HOSTS,
            lambda one, other: sum(DELAYS_MS[min(one, other) : max(one, other)]),
            bottlenecks=bottlenecks,
            **values,
        )
        self.record = Record()
        self.simulation = Simulation(simulate_network(network, changes, Random(1), seed=1), self.record, seed=1)
        hosts = [self.simulation.add_host(number) for number in range(HOSTS)]
        self.ends = {(one, other): self.simulation.join(hosts[one], other, None) for one, other in ENDS}

    def send(self, at_ns: int, source: int, destination: int, size: int) -> None:
        self.simulation.at(at_ns, self.simulation.write, self.ends[source, destination], frame_of(size))

    def run(self) -> None:
        self.simulation.run(10**12)

    def arrivals(self, source: int, destination: int) -> list[tuple[int, int]]:
        """Return when each frame of a connection arrived, and its offset in the stream, in the order of arrival."""
        conn = self.ends[source, destination].conn
        return [(each.ts_ns, each.off) for each in self.record.events if each.event == "receive" and each.conn == conn]


def send_all(bed: Bed, sent: list[tuple[int, int, int, int]]) -> dict[int, int]:
    """Send packets of these lengths with headers. Return when each arrives, by its number."""
    numbers: dict[tuple[int, int], list[int]] = {ends: [] for ends in ENDS}
    for number, (at_ns, source, destination, size) in enumerate(sent):
        numbers[source, destination].append(number)
        bed.send(at_ns, source, destination, size - HEADER_BYTES)
    bed.run()
    return {
        number: at_ns
        for ends, of_ends in numbers.items()
        for number, (at_ns, _) in zip(of_ends, bed.arrivals(*ends), strict=True)
    }


@settings(max_examples=examples(60), deadline=None)
@given(packets, rates, rates)
def test_packets_wait_as_at_queues_written_by_hand_and_as_in_the_data_plane(
    actions: list[tuple[int, int, int, int]], first_mbit: float, second_mbit: float
) -> None:
    limits = (first_mbit, ENDLESS_MS), (second_mbit, ENDLESS_MS)
    bench = bench_of(*limits)
    sent = play(bench, actions)
    assert bench.drops.get("queue", 0) == 0
    found = send_all(Bed(first_mbit, second_mbit), sent)
    assert found == forward(sent, *limits)
    assert found == {number: at_ns for at_ns, *_, number in bench.written}


def test_flows_share_a_bottleneck_in_the_order_of_arrival() -> None:
    bed = Bed(0.0, 8.0)
    sent = [(number, number % 2, 2, 1000) for number in range(20)]
    found = send_all(bed, sent)
    assert [found[number] - 31 * MS_NS for number in (1, 3, 5)] == [1, 1 + MS_NS, 1 + 2 * MS_NS]
    assert sorted(found.values())[10:] == [1 + (40 + number) * MS_NS for number in range(1, 11)]


@pytest.mark.parametrize(
    ("first_mbit", "second_mbit", "access_mbit", "extra"),
    [(1.0, 0.0, 0.0, 0), (0.0, 1.0, 0.0, 0), (1.0, 1.0, 0.0, 1), (1.0, 1.0, 1.0, 3), (0.0, 0.0, 1.0, 1)],
)
def test_a_frame_of_many_packets_takes_a_packet_more_per_further_link(
    first_mbit: float, second_mbit: float, access_mbit: float, extra: int
) -> None:
    bed = Bed(first_mbit, second_mbit, rate_mbit=[access_mbit] * 2 * HOSTS if access_mbit else ())
    bed.send(0, 0, 2, 20 * MSS_BYTES)
    bed.run()
    assert bed.arrivals(0, 2) == [(40 * MS_NS + (20 + extra) * FULL_BYTES * 8000, 0)]


def test_the_packets_behind_a_bottleneck_wait_at_a_slower_access_link() -> None:
    bed = Bed(0.0, 4.0, rate_mbit=[0.0] * HOSTS + [1.0] * HOSTS)
    bed.send(0, 0, 2, 20 * MSS_BYTES)
    bed.run()
    assert bed.arrivals(0, 2) == [(40 * MS_NS + FULL_BYTES * 2000 + 20 * FULL_BYTES * 8000, 0)]


def test_a_path_without_bottlenecks_takes_one_event() -> None:
    bed = Bed(0.0, 4.0)
    assert bed.ends[0, 1].path is None
    assert bed.ends[0, 2].path is not None
    bed.send(0, 0, 1, 20 * MSS_BYTES)
    bed.run()
    assert bed.arrivals(0, 1) == [(10 * MS_NS, 0)]


@pytest.mark.parametrize(
    "values", [{"jitter_ms": lambda *_: 8.0}, {"loss_ratio": lambda *_: 0.3}, {"rate_mbit": [2.0] * 2 * HOSTS}, {}]
)
@pytest.mark.parametrize("slower", [True, False])
def test_streams_keep_their_order(values: dict, slower: bool) -> None:
    """Also where a change makes the delay behind a bottleneck shorter while packets are on their way."""
    change = Change(from_ns=0, fault=0, to_ns=200 * MS_NS, sources=(0, 1, 2), destinations=(0, 1, 2), delay_factor=3.0)
    changes = [change] if slower else []
    bed = Bed(4.0, 2.0, *changes, **values)
    for number in range(60):
        for ends in ((0, 2), (2, 0), (1, 2)):
            bed.send(number * 7 * MS_NS, *ends, 400 + 97 * number)
    bed.run()
    for ends in ((0, 2), (2, 0), (1, 2)):
        offsets = [off for _, off in bed.arrivals(*ends)]
        assert len(offsets) == 60
        assert offsets == sorted(offsets)


def test_the_other_side_hears_of_a_crash_after_what_waits_at_a_bottleneck() -> None:
    bottlenecks = Bottlenecks(chain((1.0, ENDLESS_MS), UNLIMITED).graph, (0, 1))
    network = SimulatedNetwork(Network(2, lambda *_: 10.0, bottlenecks=bottlenecks), Random(1))
    simulation, record = simulate(2, {"name": "complete"}, network)
    simulation.run(2 * SECOND_NS)
    simulation.give(0, Publish((0,), message_id(0, 0), b"x" * 10_000))
    simulation.run(2 * SECOND_NS + MS_NS)
    simulation.crash(0)
    simulation.run(2 * SECOND_NS + 80 * MS_NS)
    assert [node for _, node, _ in record.delivered] == [0], "most packets wait"
    simulation.run(4 * SECOND_NS)
    assert [node for _, node, _ in record.delivered] == [0, 1]
    assert not links(simulation)
