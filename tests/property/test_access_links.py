"""Access links of the simulated network against a simulation of every packet, as the data plane forwards them."""

from heapq import heapify, heappop, heappush
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from harness.simulator.access import FULL_BYTES, HEADER_BYTES, MSS_BYTES
from harness.simulator.network import SimulatedNetwork
from topologies.network import Network

DELAYS_NS = (0, 3_000_000, 20_000_000)
RECEIVER = 99


class Written(NamedTuple):
    """A frame: when it is written, by which host, and its length."""

    at_ns: int
    source: int
    size: int


def packets_of(size: int) -> list[int]:
    full, rest = divmod(size, MSS_BYTES)
    return [FULL_BYTES] * full + ([rest + HEADER_BYTES] if rest else [])


def forward_packets(frames: list[Written], rates: dict[int, float]) -> list[float]:
    """When the last packet of each frame has reached the receiver: every packet is stored, then forwarded."""
    byte_ns = {host: 8000 / rate if rate else 0.0 for host, rate in rates.items()}
    free_ns, arrivals = dict.fromkeys(rates, 0.0), []
    for number, frame in enumerate(frames):
        for length in packets_of(frame.size):
            left_ns = max(frame.at_ns, free_ns[frame.source]) + length * byte_ns[frame.source]
            free_ns[frame.source] = left_ns
            arrivals.append((left_ns + DELAYS_NS[frame.source], len(arrivals), number, length))
    done_ns = [0.0] * len(frames)
    for at_ns, _, number, length in sorted(arrivals):
        free_ns[RECEIVER] = done_ns[number] = max(at_ns, free_ns[RECEIVER]) + length * byte_ns[RECEIVER]
    return done_ns


def simulate(frames: list[Written], rates: dict[int, float]) -> list[int]:
    """The same by the simulated network, event by event."""
    hosts, unused = range(RECEIVER + 1), 1e-3
    rate_mbit = [unused if host == RECEIVER else rates.get(host, 0.0) for host in hosts]
    rate_mbit += [rates.get(host, 0.0) if host == RECEIVER else unused for host in hosts]
    network = SimulatedNetwork(Network(RECEIVER + 1, lambda a, b: DELAYS_NS[a] / 1e6, rate_mbit=rate_mbit), Random(1))
    done_ns, latest_ns = [0] * len(frames), dict.fromkeys(rates, 0)
    events: list = [(frame.at_ns, number, "write", number, None) for number, frame in enumerate(frames)]
    heapify(events)
    pushed = len(frames)
    while events:
        at_ns, _, what, number, crossing = heappop(events)
        _, source, size = frames[number]
        if what == "write":
            earlier_ns = latest_ns[source]
            latest_ns[source] = last_ns = network.arrival_ns(at_ns, source, RECEIVER, size)
            if size <= MSS_BYTES:
                heappush(events, (last_ns, pushed, "only", number, None))
            else:
                crossing = network.cross(last_ns, source, RECEIVER, size, earlier_ns)
                heappush(events, (crossing.first_ns, pushed, "first", number, crossing))
                if last_ns > crossing.first_ns:
                    heappush(events, (last_ns, pushed + 1, "last", number, crossing))
            pushed += 2
        elif what == "only":
            done_ns[number] = network.pass_down_ns(at_ns, RECEIVER, size)
        else:
            if what == "first":
                crossing.link.begin(crossing)
            if what == "last" or crossing.last_ns == crossing.first_ns:
                done_ns[number] = crossing.link.end(crossing)
    return done_ns


def some_frames(sources: int) -> st.SearchStrategy[list[Written]]:
    frame = st.builds(
        Written,
        st.integers(0, 60_000_000),
        st.integers(0, sources - 1),
        st.one_of(st.integers(1, 4000), st.integers(1, 90_000)),
    )
    return st.lists(frame, min_size=1, max_size=8).map(sorted)


some_rate = st.sampled_from([0.0, 1.0, 4.0, 10.0, 33.0, 100.0])


@given(some_frames(1), some_rate, some_rate)
def test_frames_of_one_source_arrive_as_their_packets_do(frames: list[Written], up: float, down: float) -> None:
    rates = {0: up, RECEIVER: down}
    found, expected = simulate(frames, rates), forward_packets(frames, rates)
    assert all(abs(one - other) <= 2 * len(frames) for one, other in zip(found, expected, strict=True)), (
        "ns of rounding"
    )


@given(some_frames(3), st.tuples(some_rate, some_rate, some_rate), some_rate)
def test_where_frames_mix_each_source_shifts_them_by_a_packet_at_most(
    frames: list[Written], up: tuple[float, float, float], down: float
) -> None:
    rates = {**dict(enumerate(up)), RECEIVER: down}
    found, expected = simulate(frames, rates), forward_packets(frames, rates)
    packet_ns = FULL_BYTES * 8000 / down if down else 0.0
    most_ns = 3 * packet_ns + 2 * len(frames)
    assert all(abs(one - other) <= most_ns for one, other in zip(found, expected, strict=True))


def test_a_big_frame_takes_its_time_on_the_slower_link_alone() -> None:
    size = 100 * MSS_BYTES
    packet_ns = FULL_BYTES * 8000
    assert simulate([Written(0, 0, size)], {0: 1.0, RECEIVER: 1.0}) == [101 * packet_ns]
    assert simulate([Written(0, 0, size)], {0: 10.0, RECEIVER: 1.0}) == [100 * packet_ns + packet_ns // 10]
    assert simulate([Written(0, 0, size)], {0: 1.0, RECEIVER: 10.0}) == [100 * packet_ns + packet_ns // 10]
    assert simulate([Written(0, 0, size)], {0: 0.0, RECEIVER: 1.0}) == [100 * packet_ns]


def test_a_small_frame_passes_between_the_packets_of_a_big_one() -> None:
    """Two sources: the small frame does not wait for the whole big one, which pays for it."""
    size, packet_ns = 100 * MSS_BYTES, FULL_BYTES * 8000
    big, small = simulate([Written(0, 0, size), Written(40 * packet_ns, 1, 100)], {0: 1.0, 1: 0.0, RECEIVER: 1.0})
    assert small < 40 * packet_ns + DELAYS_NS[1] + 3 * packet_ns
    assert big == 101 * packet_ns + (100 + HEADER_BYTES) * 8000
