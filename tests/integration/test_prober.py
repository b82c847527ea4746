"""A probing process that stops answering, or ends, is an error within bounded time, whatever it was doing."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from harness.errors import TestbedError
from harness.stages import manifest
from harness.testbeds.emulated import probes
from harness.testbeds.emulated.probes import Prober
from topologies.network import uniform_network

pytestmark = pytest.mark.root

PATIENCE_S = 4.0
"""On a busy machine a sound prober may take a second."""
OWN = "/proc/self/ns/net"
HOSTS = 2


@pytest.fixture
def prober(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prober]:
    """It probes loopback."""
    monkeypatch.setattr(probes, "PATIENCE_S", PATIENCE_S)
    started = Prober(uniform_network(HOSTS, 0.0), [OWN] * HOSTS, ["127.0.0.1"] * HOSTS, manifest.epoch_offset_ns(), 1)
    yield started
    started.close()


def few(prober: Prober) -> None:
    prober.exchange(np.array([[0, 1]]), np.array([0]))


def many(prober: Prober) -> None:
    """So many that the message does not fit into the pipe."""
    prober.exchange(np.tile([[0, 1]], (100_000, 1)), np.zeros(100_000, np.int64))


def sampling(prober: Prober) -> None:
    prober.stop_sampling("during")


@pytest.mark.parametrize(
    ("ask", "sent", "said"),
    [
        (few, signal.SIGSTOP, "no answer within"),
        (many, signal.SIGSTOP, "read no command"),
        (sampling, signal.SIGSTOP, "no answer within"),
        (few, signal.SIGKILL, "ended"),
        (many, signal.SIGKILL, "ended"),
        (sampling, signal.SIGKILL, "ended"),
    ],
)
def test_a_stuck_or_dead_prober_is_an_error(
    prober: Prober, ask: Callable[[Prober], None], sent: signal.Signals, said: str
) -> None:
    few(prober)
    if ask is sampling:
        prober.start_sampling(1000, 60)
    [process] = [child for child in multiprocessing.active_children() if child.name == "prober"]
    os.kill(process.pid, sent)
    with pytest.raises(TestbedError, match=said):
        ask(prober)
    with pytest.raises(TestbedError, match="ended"):  # a late answer must not be taken for the next question's
        few(prober)
