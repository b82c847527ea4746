"""The agent's Prometheus metrics: its peers by state, and their memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

STATES = ("created", "ready", "exited", "signalled", "running")

PSS_AGE_S = 30.0
"""How old a reading of the memory may be: the kernel walks every page of every peer for one, and holds the peer."""


def read_pss_bytes(pids: Iterable[int]) -> int:
    """The processes' proportional set sizes together; a process that has just ended counts 0."""
    return sum(_read_one(pid) for pid in pids)


def _read_one(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def make_agent_registry(
    count_states: Callable[[], dict[str, int]], running_pids: Callable[[], list[int]]
) -> CollectorRegistry:
    """A registry of its own for the agent's metrics."""
    registry = CollectorRegistry()
    registry.register(_AgentCollector(count_states, running_pids))
    return registry


class _AgentCollector(Collector):
    def __init__(self, count_states: Callable[[], dict[str, int]], running_pids: Callable[[], list[int]]) -> None:
        self._count_states = count_states
        self._running_pids = running_pids
        self._read_at_s = -PSS_AGE_S
        self._pss_bytes = 0

    def collect(self) -> Iterator[Metric]:
        """The peers by state, and their memory as it was lately."""
        counts = self._count_states()
        states = GaugeMetricFamily("trellis_agent_peers", "Peers of this machine by state.", labels=("state",))
        for state in STATES:
            states.add_metric((state,), counts.get(state, 0))
        yield states
        if time.monotonic() - self._read_at_s >= PSS_AGE_S:
            self._read_at_s = time.monotonic()
            self._pss_bytes = read_pss_bytes(self._running_pids())
        yield GaugeMetricFamily("trellis_agent_peers_pss_bytes", "Memory of all peers.", value=self._pss_bytes)
