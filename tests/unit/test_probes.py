"""What a probe asks for, and the packet that it sends."""

import struct

import numpy as np
import pytest

from harness.testbeds.emulated.echo import _request
from harness.testbeds.emulated.probes import asked_jitter_ms, asked_rtt_ms
from topologies.model import Host, Underlay


def underlay(**changes: object) -> Underlay:
    zero = np.zeros((2, 2))
    values = {
        "kind": "test",
        "hosts": (Host("a", "a"), Host("b", "b")),
        "delay_ms": np.array([[0.0, 10.0], [30.0, 0.0]]),
        "jitter_ms": zero,
        "loss_ratio": zero,
        "rate_mbit": np.zeros(2),
        "queue_ms": np.zeros(2),
        "filled": zero.astype(np.int8),
    }
    return Underlay(**{**values, **changes})  # type: ignore[arg-type]


def test_asked_rtt_is_the_sum_of_both_directions() -> None:
    assert asked_rtt_ms(underlay()).tolist() == [[0.0, 40.0], [40.0, 0.0]]


def test_asked_rtt_has_four_passages_through_limited_access_links() -> None:
    """84 bytes are 672 bits: 0.672 ms at 1 Mbit/s, once up and once down at the limited host."""
    limited = asked_rtt_ms(underlay(rate_mbit=np.array([1.0, 0.0])))
    assert limited[0, 1] == pytest.approx(40 + 2 * 0.672)


def test_asked_jitter_of_a_round_trip_adds_variances() -> None:
    jitter = asked_jitter_ms(underlay(jitter_ms=np.array([[0.0, 3.0], [4.0, 0.0]])))
    assert jitter[0, 1] == jitter[1, 0] == 5.0


@pytest.mark.parametrize(("nonce", "index"), [(0, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0x12345678, 60_269), (0xFFFF0000, 1)])
def test_request_has_a_checksum_that_makes_its_sum_all_ones(nonce: int, index: int) -> None:
    packet = _request(nonce, index)
    assert len(packet) == 64
    total = sum(struct.unpack(">32H", packet))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF
