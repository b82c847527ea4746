"""What the handle of the userspace plane attaches to its commands."""

import numpy as np
import pytest

from harness.planes.userspace.commands import unwrap_network, wrap_network
from topologies.network import Network, uniform_network


@pytest.mark.parametrize(
    "network",
    [
        uniform_network(3, 7.0),
        Network(
            3,
            lambda a, b: a + b / 10,
            jitter_ms=lambda a, b: a / 8,
            loss_ratio=lambda a, b: b / 8,
            rate_mbit=[0, 1, 2, 3, 4, 5],
            queue_ms=[6, 7, 8, 9, 10, 11],
            jitter_correlation_ms=3.5,
        ),
    ],
)
def test_a_network_reaches_the_forwarding_process_as_it_is(network: Network) -> None:
    found = unwrap_network(wrap_network(network))
    for ours, theirs in zip(network.asked_of_pairs(), found.asked_of_pairs(), strict=True):
        assert np.array_equal(ours, theirs)
    numbers = range(2 * network.size)
    assert [found.link(number) for number in numbers] == [network.link(number) for number in numbers]
    assert found.jitter_correlation_ms == network.jitter_correlation_ms
    assert (found.jitter_ms is None) is (network.jitter_ms is None)


def test_matrices_of_zeros_are_not_sent_and_use_no_memory() -> None:
    found = unwrap_network(wrap_network(uniform_network(500, 1.0))).asked_of_pairs()
    assert found.jitter_ms.strides == found.loss_ratio.strides == (0, 0)
