"""A run with faults from its file to its verdict: what crosses a cut, and what the checks make of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.experiment.loader import load_experiment
from harness.planning import make_plan, write_plan
from harness.stages.simulation import simulate_planned
from metrics import summary, tables
from metrics.rundir import RunDir

SECOND = 1_000_000_000
DELAY_MS = 40.0

EXPERIMENT = f"""
name = "faulty"
protocol = "gossipsub"
testbed = "simulated"

[underlay]
kind = "uniform"
hosts = 8
delay_ms = {DELAY_MS}

[gossipsub]
connections = 4

[workload]
topics = 2
publish_rate_per_s = 4
duration_s = 80
cooldown_s = 30

[interests]
ratio = 0.9

[groups]
left = {{ nodes = [0, 1, 2, 3] }}

[[faults]]
at_s = 5
"""


def perform(folder: Path, fault: str) -> RunDir:
    """Plan and simulate an experiment with a fault, and analyse the run."""
    file, run_dir = folder / "faulty.toml", folder / "run"
    file.write_text(EXPERIMENT + fault, encoding="utf-8")
    write_plan(make_plan(load_experiment(file), file), run_dir)
    simulate_planned(run_dir)
    tables.build(run_dir)
    summary.write(run_dir)
    return RunDir(run_dir)


def events(run: RunDir, name: str) -> list[dict[str, Any]]:
    lines = [line for path in (run.path / "trace").iterdir() for line in path.read_text("utf-8").splitlines()]
    return [event for event in map(json.loads, lines) if event["event"] == name]


@pytest.mark.parametrize(("for_s", "breaks"), [pytest.param(15, False, marks=pytest.mark.long), (45, True)])
def test_nothing_crosses_a_partition_and_the_run_is_valid(tmp_path: Path, for_s: int, breaks: bool):
    run = perform(tmp_path, f'for_s = {for_s}\npartition = ["left", "rest"]\n')
    assert run.summary.verdict == "valid"
    zero_ns, delay_ns = run.manifest.zero_ns, round(DELAY_MS * 1e6)
    cut_ns, healed_ns = zero_ns + 5 * SECOND + delay_ns, zero_ns + (5 + for_s) * SECOND + delay_ns
    crossed = [event["ts_ns"] for event in events(run, "receive") if (event["node"] < 4) != (event["peer"] < 4)]
    assert not [ts_ns for ts_ns in crossed if cut_ns <= ts_ns < healed_ns]
    assert [ts_ns for ts_ns in crossed if ts_ns < cut_ns]
    assert [ts_ns for ts_ns in crossed if ts_ns >= healed_ns]
    reasons = {event["reason"] for event in events(run, "remove_peer")}
    assert ("TimeoutError" in reasons) == breaks


def test_paused_peers_publish_and_read_afterwards(tmp_path: Path):
    run = perform(tmp_path, "for_s = 20\npause = [1, 5]\n")
    assert run.summary.verdict == "valid"
    assert run.summary.headline["delivery_ratio"] == 1
    pause_ns = [run.manifest.zero_ns + second * SECOND for second in (5, 25)]
    paused = [event["ts_ns"] for name in ("send", "receive") for event in events(run, name) if event["node"] in (1, 5)]
    assert not [ts_ns for ts_ns in paused if pause_ns[0] <= ts_ns < pause_ns[1]]
    assert [ts_ns for ts_ns in paused if ts_ns == pause_ns[1]], "what it has missed"
