"""The agent's Prometheus metrics: its peers by state, and their memory."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric

from peer.runtime.exposition import by_label

STATES = ("created", "ready", "exited", "signalled", "running")

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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


def read_cpu_s(pids: Iterable[int]) -> float:
    """Return the processor time (real s) that the processes, and children that they waited for, have used so far.

    A process that has just ended counts 0. The kernel gives each process's time in steps of 10 ms.
    """
    return sum(map(_read_ticks, pids)) / _TICKS_PER_S


def _read_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime: proc_pid_stat(5)


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


def collect_agent(
    count_states: Callable[[], dict[str, int]], running_pids: Callable[[], list[int]]
) -> Iterator[Metric]:
    """Yield the present metrics of an agent.

    Args:
        count_states: returns the number of peers by state.
        running_pids: returns the processes of the peers that have not ended.
    """
    counts = count_states()
    states = {state: counts.get(state, 0) for state in STATES}
    yield by_label(GaugeMetricFamily, "trellis_agent_peers", "Peers of this machine by state.", "state", states)
    rss_bytes = read_rss_bytes(running_pids())
    yield GaugeMetricFamily("trellis_agent_peers_rss_bytes", "Resident memory of all peers.", value=rss_bytes)
