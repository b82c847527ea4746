"""How protocols recover from a network in two halves: the quickstart with a partition, on both testbeds.

Each run is kept below ``--out`` and not made again. The table has the mean of the seeds, and of the times to recover
the smallest and the largest. Nothing is judged but the captures: how many packets entered a cut pair.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from metrics.changes import FOREVER_NS, changes_of_nodes
from metrics.pcap.records import TX
from metrics.recorded.host_captures import read_seen
from metrics.rundir import RunDir

QUICKSTART = Path(__file__).parents[1] / "playbooks/experiments/quickstart.toml"
TESTBEDS = ("emulated", "simulated")
BEGIN_S = 10
"""The partition begins so long after the first publication; as long as it lasts, and this time, pass after it."""

PARTITION = """
[[faults]]
at_s = {begin_s}
for_s = {for_s}
partition = ["left", "rest"]

[groups]
left = {{ share = 0.5 }}
"""
COLUMNS = (
    "protocol",
    "partition, s",
    "testbed",
    "seeds",
    "delivery ratio before, during, after",
    "p99 latency before, after, ms",
    "recovered after, s",
    "packets into cut pairs",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the runs that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocols", nargs="+", default=["gossipsub", "plumtree", "stan"])
    parser.add_argument("--seconds", nargs="+", type=int, default=[15, 45], help="how long the partitions last")
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2], help="of emulated runs")
    parser.add_argument("--simulated-seeds", nargs="*", type=int, default=list(range(1, 11)))
    parser.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    given = parser.parse_args(argv)
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    for protocol in given.protocols:
        for for_s in given.seconds:
            for testbed in TESTBEDS:
                seeds = given.seeds if testbed == "emulated" else given.simulated_seeds
                runs = [make(given.out, protocol, for_s, testbed, seed) for seed in seeds]
                if runs:
                    print(f"| {' | '.join(row(protocol, for_s, testbed, runs))} |", flush=True)
    return 0


def make(out: Path, protocol: str, for_s: int, testbed: str, seed: int) -> Path:
    """Return the run's directory; the run is made unless it has its summary."""
    run_dir = out / f"{protocol}-{for_s}-{testbed}-{seed}"
    if (run_dir / "summary.json").exists():
        return run_dir
    file = out / f"{protocol}-{for_s}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    experiment = QUICKSTART.read_text(encoding="utf-8") + PARTITION.format(begin_s=BEGIN_S, for_s=for_s)
    file.write_text(experiment, encoding="utf-8")
    changed = {
        "protocol": protocol,
        "testbed": testbed,
        "workload.duration_s": 2 * (BEGIN_S + for_s),
    }
    command = [sys.executable, "-P", "-m", "harness.cli", "run", str(file), "--seed", str(seed), "--out", str(run_dir)]
    subprocess.run(
        [*command, *(word for key, value in changed.items() for word in ("--set", f"{key}={value}"))],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,  # the exit code is the verdict
    )
    return run_dir


def row(protocol: str, for_s: int, testbed: str, runs: Sequence[Path]) -> Iterator[str]:
    """Yield the cells of a row."""
    found = [{line["phase"]: line for line in read_faults(run)} for run in runs]
    verdicts = [json.loads((run / "summary.json").read_bytes())["verdict"] for run in runs]

    def cells(column: str, *phases: str) -> str:
        known = ([line[phase][column] for line in found if line[phase][column] is not None] for phase in phases)
        return ", ".join(f"{mean(values):.4g}" if values else "none" for values in known)

    yield protocol
    yield str(for_s)
    yield testbed
    yield f"{len(runs)} ({verdicts.count('valid')} `valid`)"
    yield cells("delivery_ratio", "before", "during", "after")
    yield cells("latency_ms_p99", "before", "after")
    times_s = [line["after"]["recovered_ms"] for line in found]
    known_s = [time / 1e3 for time in times_s if time is not None]
    never = f", {len(times_s) - len(known_s)} never" if len(known_s) < len(times_s) else ""
    yield (f"{mean(known_s):.1f} ({min(known_s):.1f} to {max(known_s):.1f})" if known_s else "") + never
    yield str(sum(map(count_crossing, runs))) if testbed == "emulated" else ""


def read_faults(run_dir: Path) -> list[dict[str, Any]]:
    """Return the rows of the table ``faults``."""
    rows: list[dict[str, Any]] = pq.read_table(run_dir / "tables" / "faults.parquet").to_pylist()
    return rows


def count_crossing(run_dir: Path) -> int:
    """Count the packets that entered a cut pair between the applied instants, by the data plane's captures."""
    run = RunDir(run_dir)
    crossing, files = 0, [run_dir / name for name in run.manifest.capture_files]
    for host in range(run.underlay.size):
        seen = read_seen(files, host, run.manifest.epoch_offset_ns)
        if seen is None:
            raise ValueError(f"{run_dir}: no packet of host {host}")
        there = seen.keys[:, 19].astype(int) - 1  # host n has the address 10.0.0.(n + 1)
        for cut in changes_of_nodes(run):
            if cut.is_cut and host in cut.sources:
                to_ns = FOREVER_NS if cut.to_ns is None else cut.to_ns
                inside = (seen.at_ns >= cut.from_ns) & (seen.at_ns < to_ns)
                crossing += int((inside & (seen.tap == TX) & np.isin(there, cut.destinations)).sum())
    return crossing


if __name__ == "__main__":
    sys.exit(main())
