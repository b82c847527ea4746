"""What a probe asks for, and the packet that it sends."""

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from harness.testbeds.emulated.echo import make_request
from harness.testbeds.emulated.probes import AskedOfProbes
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
