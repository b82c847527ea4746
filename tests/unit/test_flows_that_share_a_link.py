"""How evenly flows share a link: what iperf3 prints, errors and their intervals, and the model of flows."""

import numpy as np
import pytest

from benchmarks._flows import BATCHES, CLOSE, describe_queueing, describe_shares, read_rates
from benchmarks._model_flows import PACKET_BYTES, PAYLOAD_BYTES, model_flows
from topologies.bottlenecks import Bottleneck

SAID = """\
-----------------------------------------------------------
Server listening on 5201 (test #1)
-----------------------------------------------------------
Accepted connection from 10.0.0.1, port 40000
[  5] local 10.0.0.2 port 5201 connected to 10.0.0.1 port 40002
[ ID] Interval           Transfer     Bitrate
[  5]   0.00-2.00   sec   900 KBytes  9000 Kbits/sec                  (omitted)
[  5]   0.00-2.00   sec  1.17 MBytes  4906 Kbits/sec                  
[  5]   2.00-4.00   sec   597 KBytes  2445 Kbits/sec                  
[  5]   4.00-4.03   sec  9.90 KBytes  2703 Kbits/sec                  
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bitrate
[  5]   0.00-4.03   sec  1.76 MBytes  3670 Kbits/sec                  receiver
"""  # noqa: W291 - as iperf3 3.12 prints it


def test_counted_intervals_are_read() -> None:
    assert read_rates(SAID, 4) == [4.906, 2.445]
    with pytest.raises(ValueError, match="expected 3 intervals, got 2"):
        read_rates(SAID, 6)


def test_equal_flows_have_no_error_and_one_that_gets_all_has_the_least_index() -> None:
    even = describe_shares(np.full((4, 2 * BATCHES), 2.5))
    assert even == {"sum_mbit": 10, "jain": 1, "worst_part_error": 0, "worst_half_width": 0, "needed_s": 0}
    alone = np.zeros((4, BATCHES))
    alone[2] = 10.0
    found = describe_shares(alone)
    assert (found["sum_mbit"], found["jain"], found["worst_part_error"]) == (10, 1 / 4, 3)


def test_the_interval_has_the_error_of_an_even_link_and_not_that_of_an_uneven_one() -> None:
    draws = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        rates = 5 + draws.normal(0, 1, (2, 100))
        found = describe_shares(rates)
        inside += found["worst_part_error"] <= found["worst_half_width"]
    assert 180 <= inside <= 199, "a 95 % interval, 200 times"
    rates = np.array([[5.5], [4.5]]) + draws.normal(0, 1, (2, 1000))
    found = describe_shares(rates)
    assert found["worst_part_error"] - found["worst_half_width"] > CLOSE


def test_after_the_needed_time_errors_are_small() -> None:
    draws = np.random.default_rng(2)
    asked = [describe_shares(5 + draws.normal(0, 1, (4, 100)))["needed_s"] for _ in range(50)]
    intervals = round(float(np.mean(asked)) / 2)
    close = [describe_shares(5 + draws.normal(0, 1, (4, intervals)))["worst_part_error"] <= CLOSE for _ in range(200)]
    assert 180 <= sum(close) <= 200


def test_the_queue_is_the_round_trip_less_that_of_the_idle_network() -> None:
    found = describe_queueing([40.0, float("nan"), *[60.0] * 5, *[68.0] * 5, 90.0], 20.0, 50.0)
    assert (found["queueing_p50_ms"], found["queueing_max_ms"]) == (44, 70)
    even = describe_queueing([68.0] * 1000 + [float("nan"), 90.0], 20.0, 50.0)
    assert even["queueing_p99_ms"] == 48
    assert even["queueing_error"] == pytest.approx(0.04), "one that is late does not count"


@pytest.mark.parametrize("flows", [1, 4])
def test_modelled_flows_fill_the_link_and_are_even(flows: int) -> None:
    link = Bottleneck(0, 10.0, 50.0)
    rates = np.mean([model_flows(flows, 60, 6, link, 20.0, seed) for seed in (1, 2, 3, 4)], axis=0)
    found = describe_shares(rates)
    assert found["sum_mbit"] == pytest.approx(10.0 * PAYLOAD_BYTES / PACKET_BYTES, rel=0.03)
    assert found["worst_part_error"] < 3 * CLOSE
    assert np.array_equal(*(model_flows(flows, 20, 6, link, 20.0, 1) for _ in range(2)))
