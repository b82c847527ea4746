"""The agent's Prometheus metrics: its peers by state, and their memory."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

STATES = ("created", "ready", "exited", "signalled", "running")

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_pss_bytes(pids: Iterable[int]) -> int:
    """Return the sum of the processes' proportional set sizes; a process that has just ended counts 0.

    The kernel visits every page of each process for it. This takes about 1 ms per process and blocks the process, so do
    not call it during a measurement.
    """
    return sum(map(_read_pss, pids))


def read_rss_bytes(pids: Iterable[int]) -> int:
    """Return the sum of the processes' resident set sizes; a process that has just ended counts 0.

    The kernel counts them anyway, so reading them disturbs no process. Shared pages count once per process.
    """
    return sum(map(_read_rss, pids))


def _read_rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _read_pss(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def make_agent_registry(
    count_states: Callable[[], dict[str, int]], running_pids: Callable[[], list[int]]
) -> CollectorRegistry:
    """Return a separate registry for the agent's metrics."""
    registry = CollectorRegistry()
    registry.register(_AgentCollector(count_states, running_pids))
    return registry


class _AgentCollector(Collector):
    def __init__(self, count_states: Callable[[], dict[str, int]], running_pids: Callable[[], list[int]]) -> None:
        self._count_states = count_states
        self._running_pids = running_pids

    def collect(self) -> Iterator[Metric]:
        counts = self._count_states()
        states = GaugeMetricFamily("trellis_agent_peers", "Peers of this machine by state.", labels=("state",))
        for state in STATES:
            states.add_metric((state,), counts.get(state, 0))
        yield states
        rss_bytes = read_rss_bytes(self._running_pids())
        yield GaugeMetricFamily("trellis_agent_peers_rss_bytes", "Resident memory of all peers.", value=rss_bytes)
