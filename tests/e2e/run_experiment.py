"""Two small experiments, and the command that runs them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from scapy.utils import RawPcapNgReader

ROOT = Path(__file__).parents[2]

EXPERIMENT = """
name = "small"
protocol = "random"
seed = 7

[underlay]
kind = "uniform"
hosts = 8
delay_ms = 20

[random]
degree = 3

[workload]
topics = 4
publish_rate_per_s = 10
warmup_s = 2
duration_s = 5
cooldown_s = 2

[interests]
ratio = 0.5

[peer]
record = true

[prometheus]
scrape_interval_s = 1
"""

BRIEF = """
name = "brief"
protocol = "complete"
seed = 7

[underlay]
kind = "uniform"
hosts = 3
delay_ms = 5

[workload]
topics = 2
publish_rate_per_s = 10
warmup_s = 0.5
duration_s = 2
cooldown_s = 0.5

[interests]
ratio = 1.0
"""


IN_PROCESS = ("--master", "here")
"""For tests that are not about Spark: they need not wait until it has begun."""

QUICKLY = (*IN_PROCESS, "--no-report")
"""For tests that are not about the report either: it takes half of the processor time of a small analysis."""

WITHOUT_PROMETHEUS = ("--set", "prometheus.enabled=false")
"""For runs that go to their end: Prometheus takes only what time others leave, so its answers may take minutes."""

PATIENT = ("--set", "workload.cooldown_s=2")
"""For tests that expect every delivery of the brief experiment: on a busy machine the last ones take some time."""


def write_experiment(folder: Path) -> Path:
    """The experiment's file."""
    path = folder / "small.toml"
    path.write_text(EXPERIMENT)
    return path


def write_brief(folder: Path) -> Path:
    """An experiment that is over soon."""
    path = folder / "brief.toml"
    path.write_text(BRIEF)
    return path


def trellis(*words: str | Path) -> list[str]:
    """The command line of a verb."""
    return [sys.executable, "-m", "harness.cli", *map(str, words)]


def start(*words: str | Path) -> subprocess.Popen[str]:
    """Start a verb; its standard error tells of each step that ends."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        trellis(*words), cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def await_step(process: subprocess.Popen[str], step: str, saying: str = "") -> None:
    """Wait until the run reports the end of a step, or says another line that begins so, with some words in it."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(f"{step}") and saying in line:
            return
    raise AssertionError(f"the run ended before {step!r}:\n{''.join(said)}")


def await_recorded(process: subprocess.Popen[str], run_dir: Path, timeout_s: float = 900) -> None:
    """Wait until the run's own part is over and only its analysis is left, or until it failed."""
    until_s = time.monotonic() + timeout_s
    while process.poll() is None and not (run_dir / "manifest.json").exists():
        assert time.monotonic() < until_s, "the run does not end"
        time.sleep(0.2)


def finish(process: subprocess.Popen[str], timeout_s: float = 900) -> dict[str, Any]:
    """Wait for a ``run --json`` to end; its summary, with the exit code as ``exit_code``."""
    out, err = process.communicate(timeout=timeout_s)
    assert out, err
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    return {**summary, "exit_code": process.returncode}


class Finished:
    """A finished run: its directory, its summary, and its manifest."""

    def __init__(self, run_dir: Path, summary: dict[str, Any]) -> None:
        self.run_dir = run_dir
        self.summary = summary
        self.manifest = json.loads((run_dir / "manifest.json").read_text())

    def table(self, name: str) -> list[dict[str, Any]]:
        return pq.read_table(self.run_dir / "tables" / f"{name}.parquet").to_pylist()

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run_dir / name).read_text().splitlines()]

    def captured_records(self) -> int:
        """How many packets the run's captures hold, both directions."""
        number = 0
        for name in self.manifest["capture_files"]:
            with RawPcapNgReader(str(self.run_dir / name)) as packets:
                number += sum(1 for _ in packets)
        return number


LOAD = (
    "cpu",
    "steal",
    "throttled",
    "busy",
    "lateness",
    "intake",
    "stalls",
    "lag",
    "rtt",
    "first packet",
    "wire",
    "receive delay",
    "delay agreement",
    "scrapes failed",
    "never scraped",
    "counters traced was not judged",  # scrapes failed
)


def speaks_of_load(reason: str) -> bool:
    """Whether a verdict's reason is that this machine was too busy just now: true of the machine, not of the code."""
    return any(word in reason for word in LOAD)


def descendants(process: int) -> dict[int, str]:
    """All living processes below one, with their command lines."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(stat.parent.name)] = int(parent)
    found: dict[int, str] = {}
    frontier = {process}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found |= {child: _command(child) for child in frontier}
    return found


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
