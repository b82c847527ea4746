"""What a probe asks for, the packet that it sends, and the order in which a sweep sends them."""

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.testbeds.emulated.echo import make_request
from harness.testbeds.emulated.probes import AskedOfProbes, interleave
from topologies.network import AskedOfPairs, Network


def network(jitter_ms: Sequence[Sequence[float]] = ((0, 0), (0, 0)), rate_mbit: Sequence[float] = ()) -> Network:
    delay_ms = np.array([[0.0, 10.0], [30.0, 0.0]])
    asked = AskedOfPairs(delay_ms, np.array(jitter_ms, np.float64), np.zeros((2, 2)))
    return Network.of_pairs(asked, rate_mbit=rate_mbit)


def test_asked_rtt_is_the_sum_of_both_directions() -> None:
    assert AskedOfProbes.of(network()).rtt_ms.tolist() == [[0.0, 40.0], [40.0, 0.0]]


def test_asked_rtt_has_four_passages_through_limited_access_links() -> None:
    """84 bytes are 672 bits: 0.672 ms at 1 Mbit/s; once up and once down at each host."""
    asked = AskedOfProbes.of(network(rate_mbit=[1.0, 0.0, 2.0, 4.0]))
    assert asked.there_ms[0, 1] == pytest.approx(10 + 0.672 + 0.168)
    assert asked.rtt_ms[0, 1] == pytest.approx(40 + 0.672 + 0.168 + 0.336)


def test_asked_jitter_of_a_round_trip_adds_variances() -> None:
    jitter_ms = AskedOfProbes.of(network(jitter_ms=[[0.0, 3.0], [4.0, 0.0]])).jitter_ms
    assert jitter_ms[0, 1] == jitter_ms[1, 0] == 5.0


@pytest.mark.parametrize(("nonce", "index"), [(0, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0x12345678, 60_269), (0xFFFF0000, 1)])
def test_request_has_a_checksum_that_makes_its_sum_all_ones(nonce: int, index: int) -> None:
    packet = make_request(nonce, index)
    assert len(packet) == 64
    total = sum(struct.unpack(">32H", packet))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF


@given(
    pairs=st.integers(1, 400),
    packets=st.integers(2, 5),
    rate_per_s=st.floats(100, 12_000),
    apart_ns=st.integers(1, 10**9),
)
def test_every_pair_has_its_packets_in_turn_and_far_enough_apart(
    pairs: int, packets: int, rate_per_s: float, apart_ns: int
) -> None:
    order, due_ns = interleave(pairs, packets, rate_per_s, apart_ns)
    assert sorted(order.tolist()) == list(range(pairs * packets))
    assert (np.diff(due_ns) >= 0).all()
    of_pair = np.empty(pairs * packets, np.int64)
    of_pair[order] = due_ns
    assert (np.abs(np.diff(of_pair.reshape(packets, pairs), axis=0) - apart_ns) <= 1).all()


def test_first_and_later_packets_are_under_way_side_by_side() -> None:
    pairs, packets, rate_per_s = 6_000, 3, 6_000.0
    order, due_ns = interleave(pairs, packets, rate_per_s, apart_ns=0.5 * 1e9)
    begun, ending = 1.0 * 1e9, 3.0 * 1e9  # from the first third packet to the last first one
    for start_ns in np.arange(begun, ending - 0.1 * 1e9, 0.1 * 1e9):
        within = order[(due_ns >= start_ns) & (due_ns < start_ns + 0.1 * 1e9)]
        counts = np.bincount(within // pairs, minlength=packets)
        assert abs(counts - rate_per_s * 0.1 / packets).max() <= 1
