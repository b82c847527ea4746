"""One small experiment from the file to the verdict, and what must add up on the way."""

import json
import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metrics.analysis import analyse
from metrics.executors import HERE
from metrics.measures.resources import RESOURCES
from tests.e2e.run_experiment import (
    Finished,
    await_step,
    finish,
    speaks_of_load,
    start,
    trellis,
    write_brief,
    write_experiment,
)
from tests.processes import processes_below

pytestmark = pytest.mark.root

HOSTS = 8
EXIT_CODES = {"valid": 0, "invalid": 1, "suspect": 3}


class Watched(Finished):
    """A finished run, and the states of the processes of Java below it at the ends of some of its steps."""

    def __init__(self, folder: Path) -> None:
        process = start("run", write_experiment(folder), "--out", folder / "run", "--json")
        self.java: list[list[str]] = []
        for step in ("deploy", "warmup", "cooldown"):
            await_step(process, step)
            self.java.append([each.state for each in processes_below(process.pid) if each.name == "java"])
        super().__init__(folder / "run", finish(process))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return Watched(tmp_path_factory.mktemp("run"))


def test_ends_with_a_verdict_and_its_exit_code(run: Watched) -> None:
    assert run.summary["exit_code"] == EXIT_CODES[run.summary["verdict"]]
    assert bool(run.summary["reasons"]) == (run.summary["verdict"] != "valid")
    assert [reason for reason in run.summary["reasons"] if not speaks_of_load(reason)] == []


def test_every_peer_answers_its_recorded_events_as_it_did(run: Watched) -> None:
    done = subprocess.run(trellis("replay", run.run_dir), capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, HOSTS)
    assert all(line.endswith("every effect as recorded") for line in lines)


@pytest.mark.parametrize(
    "name",
    [
        "experiment.toml", "plan.json", "underlay.json", "overlay.json", "schedule.jsonl",
        "achieved.parquet", "first_packets.parquet", "dataplane.jsonl", "pressure.jsonl", "stalls.jsonl",
        "host_capture/hosts.pcapng",
        "prometheus", "logs",
        "manifest.json", "tables", "report/index.html", "summary.json",
        *(f"trace/{node}.jsonl" for node in range(HOSTS)),
    ],
)  # fmt: skip
def test_leaves_every_file_of_a_run_directory(run: Watched, name: str) -> None:
    assert (run.run_dir / name).exists()


def test_processors_are_watched_from_boot_to_close(run: Watched) -> None:
    """Pressure is recorded as long, and every stall is in the table, at an instant of the run."""
    counters = run.manifest["counters"]
    assert counters["processors_watched"] == counters["plane_realtime"] * len(os.sched_getaffinity(0))
    phases = run.manifest["phases"]
    deploy, last = next(phase for phase in phases if phase["name"] == "deploy"), phases[-1]
    readings = [json.loads(line)["at_ns"] for line in (run.run_dir / "pressure.jsonl").read_text().splitlines()]
    assert readings[0] < deploy["end_ns"] + 2e9
    assert readings[-1] > last["start_ns"]
    lines = (run.run_dir / "stalls.jsonl").read_text().splitlines()
    stalls = pq.read_table(run.run_dir / "tables" / "stalls.parquet").to_pylist()
    assert len(stalls) == len(lines)
    assert all(phases[0]["start_ns"] <= stall["start_ns"] < stall["end_ns"] for stall in stalls)


def test_every_frame_that_the_data_plane_counted_is_in_the_capture(run: Watched) -> None:
    counters = run.manifest["counters"]
    assert counters["frames_in"] > 0
    assert counters["records_dropped"] == 0
    assert run.captured_records() == counters["records_written"] == counters["frames_in"] + counters["frames_out"]


def test_every_expected_delivery_is_a_row(run: Watched) -> None:
    """Every published message and every other subscriber to one of its topics: delivered or not, but there."""
    overlay = json.loads((run.run_dir / "overlay.json").read_text())
    topics = {node["node"]: set(node["topics"]) for node in overlay["nodes"]}
    expected = {
        (action["message_id"], node)
        for action in run.lines("schedule.jsonl")
        for node, subscribed in topics.items()
        if node != action["node"] and subscribed & set(action["topics"])
    }
    rows = run.table("deliveries")
    assert {(row["message_id"], row["node"]) for row in rows} == expected
    assert len(rows) == len(expected)


def test_every_pair_is_probed_before_and_after(run: Watched) -> None:
    rows = pq.read_table(run.run_dir / "achieved.parquet").to_pylist()
    for phase in ("before", "after"):
        pairs = {(*sorted((row["src"], row["dst"])),) for row in rows if row["phase"] == phase}
        assert pairs == {(a, b) for a in range(HOSTS) for b in range(a + 1, HOSTS)}
    assert {row["asked_rtt_ms"] for row in rows} == {40.0}
    measured = [row["rtt_ms"] for row in rows if row["phase"] == "before"]
    assert all(rtt is not None and rtt >= 40.0 for rtt in measured)
    assert min(measured) < 41.0  # a machine that stands still for a moment delays many at once
    assert any(row["phase"] == "during" for row in rows)


def test_phases_follow_each_other_and_last_as_planned(run: Watched) -> None:
    phases = {phase["name"]: phase for phase in run.manifest["phases"]}
    running = ["warmup", "workload", "cooldown", "stop"]
    order = ["boot", "deploy", "probe_before", *running, "settle", "probe_after", "collect"]
    assert [phase["name"] for phase in run.manifest["phases"]] == order
    assert all(phases[a]["end_ns"] <= phases[b]["start_ns"] for a, b in pairwise(order))
    assert phases["workload"]["end_ns"] - phases["workload"]["start_ns"] == 5_000_000_000
    assert phases["workload"]["start_ns"] == run.manifest["zero_ns"]


def test_every_peer_ended_as_expected_and_what_it_used_was_counted(run: Watched) -> None:
    states = {state["process"]: state for state in run.manifest["final_states"]}
    assert {f"peer-{node}" for node in range(HOSTS)} <= set(states)
    assert all(state["state"] == state["expected"] for state in states.values())
    assert run.manifest["resources"]["peer_processes"] >= HOSTS
    assert run.manifest["resources"]["peers_pss_mib"] > HOSTS
    assert run.manifest["resources"]["peers_cpu_s"] > 0
    summary = json.loads((run.run_dir / "summary.json").read_text())
    assert all(summary["headline"][name] > 0 for name in (*RESOURCES.names, "wire_bytes_per_delivery"))


def test_a_trace_cut_in_half_is_noticed_and_the_rest_analysed(run: Watched, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(run.run_dir, damaged, ignore=shutil.ignore_patterns("tables", "report", "summary.json"))
    trace = damaged / "trace" / "3.jsonl"
    trace.write_bytes(trace.read_bytes()[: trace.stat().st_size // 2])
    summary = analyse(damaged, HERE, page=False)
    assert summary.verdict != "valid"
    assert any("trace" in reason and "3" in reason for reason in summary.reasons), summary.reasons
    assert summary.headline["delivery_ratio"] is not None


@pytest.mark.long
def test_the_run_after_a_killed_one_works(tmp_path: Path) -> None:
    experiment = write_brief(tmp_path)
    killed = start("run", experiment, "--out", tmp_path / "killed")
    assert killed.stderr is not None
    next(line for line in killed.stderr if line.startswith("warmup"))
    killed.kill()
    killed.communicate()
    following = finish(start("run", experiment, "--out", tmp_path / "following", "--json"))
    assert (tmp_path / "following" / "summary.json").exists()
    assert [reason for reason in following["reasons"] if not speaks_of_load(reason)] == []
    assert not (tmp_path / "killed" / "manifest.json").exists()


def test_spark_stands_still_from_before_the_first_probe_to_the_end_of_the_run(run: Watched) -> None:
    assert run.java == [["T"]] * 3
    assert run.summary["computed_by"].startswith("by Spark at local[")


def test_a_run_directory_is_never_written_twice(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    process = start("run", write_experiment(tmp_path), "--out", tmp_path / "run")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2
    assert said.splitlines()[-1].endswith("exists already; name a new directory")
