"""Jitter, asked and measured per pair of hosts: mean, standard deviation and distribution of the delay of packets.

One emulated run with few hosts and dense traffic, which is kept in ``--out``. Its packets are compared with what the
experiment asked for, not with the delays drawn for them: chance is part of the differences, less of it in longer runs.
The host of a virtual machine takes its processors away now and then. Packets that were due then are late together, so
each figure is also printed without them: ``undisturbed``.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from metrics.recorded.stalls import read_stalls
from metrics.rundir import RunDir
from topologies.jitter import Jitter

DELAY_MS: Final = 40
HOSTS: Final = 5
EXPERIMENT = """
name = "jitter"
protocol = "complete"
underlay = {{ kind = "uniform", hosts = {hosts}, delay_ms = {delay_ms}, jitter = {jitter_ms}, \
jitter_correlation_ms = {correlation_ms} }}
workload = {{ topics = 1, publish_rate_per_s = 100, payload_bytes = 100, warmup_s = 5, duration_s = {seconds}, \
cooldown_s = 5 }}
interests = {{ ratio = 1.0 }}
"""
AFTER_NS: Final = 5_000_000
"""What a stall of the host delayed is carried within this time after it."""

TARGETS = "target: at most 0.1 ms and 2 %"

Milliseconds = npt.NDArray[np.float64]


def main(argv: Sequence[str] | None = None) -> int:
    """Make the run unless it is there, and print a line per pair and the worst of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jitter-ms", type=float, default=2.0)
    parser.add_argument("--correlation-ms", type=float, default=10.0)
    parser.add_argument("--seconds", type=int, default=300, help="of the workload")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the run")
    given = parser.parse_args(argv)
    run_dir = given.out / f"jitter-{given.jitter_ms:g}-{given.correlation_ms:g}-{given.seconds}-{given.seed}"
    if not (run_dir / "summary.json").exists():
        make(run_dir, given)
    packets, undisturbed = read_delays(run_dir)
    asked = Distribution(given.jitter_ms, given.correlation_ms)
    print(
        "| pair | packets | mean, ms off | deviation, % off | largest distance of distributions, % | undisturbed: ... |"
    )
    print("|---|---|---|---|---|---|")
    rows = [(asked.compare(packets[pair]), asked.compare(undisturbed[pair])) for pair in packets]
    for (source, destination), (every, some) in zip(packets, rows, strict=True):
        cells = len(packets[source, destination]), *_rounded(every), ", ".join(_rounded(some))
        print(f"| {source} to {destination} | {' | '.join(map(str, cells))} |")
    for name, found in zip(("every packet", "undisturbed"), zip(*rows, strict=True), strict=True):
        worst = np.abs(found).max(axis=0)
        print(f"worst, {name}: mean {worst[0]:.3f} ms, deviation {worst[1]:.1f} %, distribution {worst[2]:.1f} %")
    lost = 1 - sum(map(len, undisturbed.values())) / sum(map(len, packets.values()))
    print(f"disturbed: {100 * lost:.1f} % of the packets; {TARGETS}")
    return 0


def make(run_dir: Path, given: argparse.Namespace) -> None:
    """Make the run; its verdict is not judged here."""
    file = run_dir.with_suffix(".toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {name: getattr(given, name) for name in ("jitter_ms", "correlation_ms", "seconds")}
    file.write_text(EXPERIMENT.format(hosts=HOSTS, delay_ms=DELAY_MS, **values), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "harness.cli", "run", str(file), f"--seed={given.seed}", f"--out={run_dir}"]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)


def read_delays(run_dir: Path) -> tuple[dict[tuple[int, int], Milliseconds], dict[tuple[int, int], Milliseconds]]:
    """Return the delays of each directed pair between the two taps, of all packets and of the undisturbed ones."""
    run = RunDir(run_dir)
    columns = ["src_node", "dst_node", "tap_tx_ns", "tap_rx_ns", "n_retx"]
    parts = [pq.read_table(part, columns=columns) for part in sorted((run.tables / "hops.parquet").glob("*.parquet"))]
    hops = pa.concat_tables(parts).drop_null()
    source, destination, sent_ns, came_ns, repeated = (hops[name].to_numpy() for name in columns)
    stalls = read_stalls(run_dir)
    disturbed = repeated > 0
    for at_ns in (sent_ns, came_ns):
        disturbed |= stalls.covered_ns(at_ns - AFTER_NS, at_ns) > 0
    delay_ms, pairs = (came_ns - sent_ns) / 1e6, source * HOSTS + destination
    names = {pair: divmod(pair, HOSTS) for pair in np.unique(pairs).tolist()}
    every = {name: delay_ms[(pairs == pair) & (repeated == 0)] for pair, name in names.items()}
    return every, {name: delay_ms[(pairs == pair) & ~disturbed] for pair, name in names.items()}


class Distribution:
    """The distribution that is asked for: of a long time of a pair's process."""

    def __init__(self, jitter_ms: float, correlation_ms: float) -> None:
        jitter = Jitter(seed=0, correlation_ms=correlation_ms)
        at_ns = np.arange(0, 1_000_000_000_000, 1_000_000)
        offsets_ns = jitter.process(0, 1, DELAY_MS, jitter_ms).offsets_ns(at_ns, jitter.levels)
        self._jitter_ms = jitter_ms
        self._sorted_ms = np.sort(DELAY_MS + offsets_ns / 1e6)

    def compare(self, delays_ms: Milliseconds) -> tuple[float, float, float]:
        """Return by how much the mean is off (ms), the deviation (%), and the distribution function at most (%)."""
        below = np.searchsorted(self._sorted_ms, np.sort(delays_ms)) / len(self._sorted_ms)
        apart = np.abs(below - (np.arange(len(delays_ms)) + 0.5) / len(delays_ms)).max()
        off = 100 * (delays_ms.std() / self._jitter_ms - 1)
        return float(delays_ms.mean() - DELAY_MS), float(off), float(100 * apart)


def _rounded(found: tuple[float, float, float]) -> tuple[str, str, str]:
    return f"{found[0]:+.3f}", f"{found[1]:+.1f}", f"{found[2]:.1f}"


if __name__ == "__main__":
    sys.exit(main())
