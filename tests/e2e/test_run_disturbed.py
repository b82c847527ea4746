"""Runs with a fault in them, or beside another run: each says what is wrong with it, and keeps to itself."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.run_experiment import (
    QUICKLY,
    WITHOUT_PROMETHEUS,
    Finished,
    await_step,
    descendants,
    finish,
    start,
    write_brief,
)

pytestmark = pytest.mark.root

LONG_ENOUGH = ("--set", "workload.duration_s=5", *WITHOUT_PROMETHEUS, *QUICKLY)
"""For a process to be found and ended before the workload is over."""


@pytest.mark.long
@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_a_killed_peer_is_a_reason_against_the_run(tmp_path: Path, signal: str) -> None:
    process = start("run", write_brief(tmp_path), *LONG_ENOUGH, "--out", tmp_path / "run", "--json")
    await_step(process, "warmup")
    victim = peer_process(process.pid, "10.0.0.3")
    victim_is_alive = Path(f"/proc/{victim}").exists()
    kill(victim, signal)
    summary = finish(process)
    assert victim_is_alive
    assert summary["verdict"] != "valid"
    assert any("peer-2" in reason for reason in summary["reasons"]), summary["reasons"]
    assert summary["headline"]["delivery_ratio"] is not None


@pytest.mark.long
def test_a_stopped_data_plane_is_a_reason_against_the_run(tmp_path: Path) -> None:
    process = start("run", write_brief(tmp_path), *LONG_ENOUGH, "--out", tmp_path / "run", "--json")
    await_step(process, "warmup")
    plane = next(pid for pid, command in descendants(process.pid).items() if "userspace.process" in command)
    kill(plane, "STOP")
    subprocess.run(["sleep", "1"], check=True)  # the fault itself lasts a second
    kill(plane, "CONT")
    summary = finish(process)
    assert summary["verdict"] != "valid"
    assert any("late" in reason for reason in summary["reasons"]), summary["reasons"]


@pytest.mark.long
def test_a_data_plane_that_is_killed_costs_the_verdict_and_not_the_traces(tmp_path: Path) -> None:
    process = start("run", write_brief(tmp_path), *LONG_ENOUGH, "--out", tmp_path / "run", "--json")
    await_step(process, "warmup")
    commands = descendants(process.pid)
    kill(next(pid for pid, command in commands.items() if "userspace.process " in f"{command} "), "KILL")
    summary = finish(process)
    assert summary["verdict"] == "invalid"
    assert any("data plane" in reason for reason in summary["reasons"]), summary["reasons"]
    assert len(list((tmp_path / "run" / "trace").glob("*.jsonl"))) == summary_hosts(tmp_path / "run")


def summary_hosts(run_dir: Path) -> int:
    """The nodes of a run, by its plan."""
    return len(json.loads((run_dir / "plan.json").read_bytes())["placement"])


@pytest.mark.long
def test_two_runs_side_by_side_keep_their_results_apart(tmp_path: Path) -> None:
    experiment = write_brief(tmp_path)
    both = [start("run", experiment, "--seed", str(seed), "--out", tmp_path / str(seed), "--json") for seed in (1, 2)]
    for seed, process in zip((1, 2), both, strict=True):
        summary = finish(process)
        finished = Finished(tmp_path / str(seed), summary)
        planned = {action["message_id"] for action in finished.lines("schedule.jsonl")}
        assert {row["message_id"] for row in finished.table("messages")} == planned
        assert summary["seed"] == seed
        counters = finished.manifest["counters"]
        assert finished.captured_records() == counters["records_written"]
        assert counters["records_written"] == counters["frames_in"] + counters["frames_out"] > 0


def peer_process(run: int, address: str) -> int:
    """The process below the run that listens for peers on an address."""
    wanted = f"{address}:9000"
    for process in descendants(run):
        listening = subprocess.run(
            ["nsenter", "--net", "--target", str(process), "ss", "-Hltnp"], capture_output=True, text=True, check=False
        ).stdout
        for line in listening.splitlines():
            if wanted in line and f"pid={process}," in line:
                return process
    raise AssertionError(f"no process of the run listens on {wanted}")


def kill(process: int, name: str) -> None:
    subprocess.run(["kill", f"-{name}", str(process)], check=True)
