"""A whole run on three machines: real agents, real peers, Prometheus, traces; and nothing left when it is killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from harness.deployment.fleet import Deployment
from harness.errors import TestbedError
from harness.experiment.inventory import METRICS_PORT, PEER_PORT, Inventory, Machine, save_inventory, saved_inventory
from harness.experiment.loader import load_experiment
from harness.planning import make_plan, read_plan, write_plan
from harness.stages.prometheus import reopen_prometheus
from harness.testbeds.remote.testbed import RemoteTestbed
from metrics.prometheus import GRAPHS
from metrics.recorded.probing import PHASES
from metrics.recorded.round_trips import measure_phases, read_round_trips
from metrics.rundir import ClockOffset, Manifest
from tests.e2e.run_experiment import QUICKLY, speaks_of_load, trellis
from tests.integration.deployment_machines import Box, fab, machines, prometheus_runs, sandboxed

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
MAY_BE_ABSENT = {"trellis_dropped_frames_total", "trellis_rejects_total"}
"""Labelled counters that have no series until something goes wrong."""

EXPERIMENT = """
name = "three-machines"
protocol = "complete"
testbed = "remote"
inventory = "inventory.toml"

[underlay]
kind = "uniform"
hosts = 6

[workload]
topics = 2
publish_rate_per_s = 10
warmup_s = {warmup_s}
duration_s = {duration_s}
cooldown_s = 5

[interests]
ratio = 1.0

[prometheus]
enabled = {scraped}
scrape_interval_s = 1
"""


def plan_run(
    folder: Path, fleet: list[Machine], duration_s: float = 3, warmup_s: float = 1.5, *, scraped: bool = True
) -> Path:
    fields = ("name", "host", "user", "port", "key", "known_hosts", "python", "work", "metrics_address")
    hosts = 6 // len(fleet)
    fleet = [msgspec.structs.replace(m, metrics_address=m.host) for m in fleet]
    rows = ["\n".join(f"{name} = {json.dumps(getattr(m, name))}" for name in fields) for m in fleet]
    (folder / "inventory.toml").write_text("\n".join(f"[[machines]]\n{row}\nhosts = {hosts}\n" for row in rows))
    source = folder / "experiment.toml"
    source.write_text(EXPERIMENT.format(duration_s=duration_s, warmup_s=warmup_s, scraped=str(scraped).lower()))
    run_dir = folder / "run"
    write_plan(make_plan(load_experiment(source), source), run_dir)
    save_inventory(Inventory(tuple(msgspec.structs.replace(m, hosts=hosts, own_clock=True) for m in fleet)), run_dir)
    return run_dir


def start_running(run_dir: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "harness.stages.execution", str(run_dir)], stdin=subprocess.DEVNULL)


def agents(box: Box) -> list[str]:
    """The agent and the peers of a machine."""
    return [line for line in box.processes() if "peer.runtime.agent" in line]


def await_bare(boxes: list[Box]) -> list[list[str]]:
    """What still runs on the machines, as soon as that is nothing; a minute at most."""
    deadline = time.monotonic() + 300
    while any(left := [box.processes() for box in boxes]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


@pytest.mark.slow
@sandboxed
def test_a_small_experiment_from_plan_to_manifest(tmp_path: Path):
    with machines(tmp_path, 3) as fleet:
        # Prometheus takes five to ten seconds to see its targets.
        run_dir = plan_run(tmp_path, [machine for _, machine in fleet], warmup_s=11)
        assert start_running(run_dir).wait(600) == 0
        assert await_bare([box for box, _ in fleet]) == [[], [], []]
        assert all(box.files(machine.work) == ["packages"] for box, machine in fleet)
    manifest = msgspec.json.decode((run_dir / "manifest.json").read_bytes(), type=Manifest)
    assert [(state.state, state.status) for state in manifest.final_states] == [("exited", 0)] * 6
    assert [text for _, text in manifest.problems if not speaks_of_load(text)] == []
    assert manifest.uncaptured == (
        "nodes 0 and 3 share 10.77.0.2: give each peer on m0 an address of its own (addresses)"
    )
    assert_round_trips_measured(run_dir)
    assert {f"clock_error_ns_m{i}" for i in range(3)} <= manifest.counters.keys()
    assert manifest.counters["scrapes"] > 0
    assert_all_delivered(run_dir)
    assert_metrics_as_documented(run_dir)


def assert_all_delivered(run_dir: Path) -> None:
    """Every message reaches every node, on whichever machine."""
    traces = {int(p.stem): [json.loads(row) for row in p.open()] for p in (run_dir / "trace").glob("*.jsonl")}
    assert sorted(traces) == list(range(6))
    for rows in traces.values():
        assert (rows[0]["event"], rows[-1]["event"]) == ("start", "stop")
        assert rows[-1]["records"] == len(rows) - 1
    published = {action.message_id for action in read_plan(run_dir).schedule}
    assert published
    for node, rows in traces.items():
        delivered = {row["message_id"] for row in rows if row["event"] == "deliver"}
        assert delivered == published, f"node {node}"


def assert_round_trips_measured(run_dir: Path) -> None:
    """Every address with every other one, and with itself, since two nodes share it."""
    rows = read_round_trips(run_dir)
    assert rows is not None
    phases = measure_phases(rows)
    assert list(phases) == list(PHASES)
    for phase in ("before", "after"):
        assert (phases[phase].pairs, phases[phase].sent, phases[phase].received) == (9, 27, 27)
    assert not phases["during"].silent
    fastest_ms = min(min(found.least_ms.values()) for found in phases.values())
    assert 0 < fastest_ms < 5


def assert_metrics_as_documented(run_dir: Path) -> None:
    """What was scraped is in docs/metrics.md, and the graphs that `serve` offers ask for what is there."""
    targets = json.loads((run_dir / "prometheus/targets-peer.json").read_text())
    assert sorted(int(target["labels"]["node"]) for target in targets) == list(range(6))
    server = reopen_prometheus(run_dir, 9190)
    rows = server.query('last_over_time({__name__=~"trellis_.+"}[1h])', time.time())
    answered = server.query('max_over_time(up{job="peer"}[1h]) == 1', time.time())
    server.stop()
    scraped = {row["metric"]["__name__"] for row in rows}
    asked = {name for page in GRAPHS.values() for text in page for name in re.findall(r"trellis_\w+", text)}
    assert asked <= scraped
    documented = set(re.findall(r"trellis_\w+", (ROOT / "docs/metrics.md").read_text()))
    assert scraped <= documented
    assert {name for name in documented if not name.startswith("trellis_dataplane")} - scraped <= MAY_BE_ABSENT
    nodes = {row["metric"]["node"] for row in answered}  # a busy machine leaves Prometheus no time for some
    assert nodes
    assert {row["metric"].get("node") for row in rows} - {None} == nodes


@pytest.mark.slow
@sandboxed
def test_a_killed_run_leaves_nothing_on_the_machines(tmp_path: Path):
    with machines(tmp_path, 3) as fleet:
        run_dir = plan_run(tmp_path, [machine for _, machine in fleet], duration_s=60)
        process = start_running(run_dir)
        boxes = [box for box, _ in fleet]
        deadline = time.monotonic() + 300
        # An agent and two peers a machine.
        while any(len(agents(box)) < 3 for box in boxes) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.1)
        process.kill()
        process.wait()
        assert await_bare(boxes) == [[], [], []]
        assert [box.files(machine.work) for box, machine in fleet] == [["packages"]] * 3
        assert not (run_dir / "manifest.json").exists()
        while prometheus_runs() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not prometheus_runs()


@sandboxed
def test_an_interrupted_run_leaves_nothing_on_the_machines_when_it_has_ended(tmp_path: Path):
    interrupt_run(tmp_path, "deploy")


@pytest.mark.long
@sandboxed
def test_a_run_interrupted_while_it_deploys_leaves_nothing_either(tmp_path: Path):
    interrupt_run(tmp_path, "boot")


def interrupt_run(folder: Path, after: str) -> None:
    """Send Ctrl-C to a run on two machines after a step; everything is gone when the command has ended."""
    with machines(folder, 2) as fleet:
        run_dir = plan_run(folder, [machine for _, machine in fleet], duration_s=60)
        shutil.rmtree(run_dir)
        argv = trellis("run", folder / "experiment.toml", *QUICKLY, "--out", run_dir)
        with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stderr is not None
            assert any(line.startswith(after) for line in iter(process.stderr.readline, ""))
            time.sleep(1.0 if after == "boot" else 3.0)  # into the next step
            os.killpg(process.pid, signal.SIGINT)
            said = process.communicate(timeout=300)[1]
        assert process.returncode == 130
        assert "Traceback" not in said
        assert said.splitlines()[-1].startswith(f"trellis run: interrupted; {run_dir} has no manifest.json")
        assert [box.processes() for box, _ in fleet] == [[], []]
        assert [box.files(machine.work) for box, machine in fleet] == [["packages"]] * 2
        assert not prometheus_runs()


@pytest.mark.slow
@pytest.mark.long
@sandboxed
def test_an_agent_killed_during_the_run_ends_it_and_the_rest_is_collected(tmp_path: Path):
    with machines(tmp_path, 2) as fleet:
        run_dir = plan_run(tmp_path, [machine for _, machine in fleet], duration_s=100)
        argv = [sys.executable, "-m", "harness.stages.execution", str(run_dir)]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert any(line.startswith("warmup") for line in iter(process.stderr.readline, ""))
            fleet[1][0].kill_first("peer.runtime.agent")
            said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said
        assert "the agent on m1: the agent was killed; the run ends here" in said
        assert await_bare([box for box, _ in fleet]) == [[], []]
        assert [box.files(machine.work) for box, machine in fleet] == [["packages"]] * 2
    manifest = msgspec.json.decode((run_dir / "manifest.json").read_bytes(), type=Manifest)
    assert any(severity == "invalid" and "the agent on m1" in text for severity, text in manifest.problems)
    assert len(list((run_dir / "trace").iterdir())) == 6


@pytest.mark.slow
@sandboxed
def test_a_machine_lost_during_the_run_is_named_and_the_rest_is_collected(tmp_path: Path):
    with machines(tmp_path, 3) as fleet:
        run_dir = plan_run(tmp_path, [machine for _, machine in fleet], duration_s=8, scraped=False)
        argv = [sys.executable, "-m", "harness.stages.execution", str(run_dir)]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert any(line.startswith("warmup") for line in iter(process.stderr.readline, ""))
            fleet[2][0].close()
            said = process.communicate(timeout=600)[1]
        assert process.returncode == 0, said
    manifest = msgspec.json.decode((run_dir / "manifest.json").read_bytes(), type=Manifest)
    assert any(severity == "invalid" and "m2" in text for severity, text in manifest.problems)
    assert sorted(path.name for path in (run_dir / "trace").iterdir()) == ["0.jsonl", "1.jsonl", "3.jsonl", "4.jsonl"]


@pytest.mark.slow
@sandboxed
def test_fab_looks_at_a_run_in_progress_and_stops_it(tmp_path: Path):
    def told(*words: str) -> str:
        done = fab(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with machines(tmp_path, 2) as fleet:
        run_dir = plan_run(tmp_path, [machine for _, machine in fleet], duration_s=60)
        process = start_running(run_dir)
        deadline = time.monotonic() + 300
        while not (run_dir / "prometheus").exists() and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.1)
        assert set(json.loads(told("status", "--run", str(run_dir)))) == {"m0", "m1"}
        told("collect", "--run", str(run_dir), "--into", str(tmp_path / "so-far"))
        assert len(list((tmp_path / "so-far/trace").iterdir())) == 6
        told("stop", "--run", str(run_dir))
        deadline = time.monotonic() + 300
        while (left := [agents(box) for box, _ in fleet]) != [[], []] and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == [[], []]
        process.kill()
        process.wait()


def test_the_testbed_says_where_everything_is_and_what_it_cannot_know(tmp_path: Path):
    fleet = [Machine(f"m{i}", f"192.0.2.{i}", "k", "h") for i in range(3)]
    run_dir = plan_run(tmp_path, fleet)
    testbed = RemoteTestbed(read_plan(run_dir).plan, run_dir)
    testbed.boot()
    testbed.connect(Deployment((), "token", tmp_path))
    assert [(site.machine, site.listen) for site in testbed.sites()][3:5] == [
        ("m0", ("192.0.2.0", PEER_PORT + 1)),
        ("m1", ("192.0.2.1", PEER_PORT + 1)),
    ]
    assert testbed.metrics()["m2"] == ("192.0.2.2", METRICS_PORT + 100)
    clocks = {"m0": ClockOffset(5, 7, 1_000_000), "m1": ClockOffset(0, 0, 3_000_000), "m2": ClockOffset(0, 0, 500)}
    (run_dir / "clocks.json").write_bytes(msgspec.json.encode(clocks))
    findings = testbed.close()
    assert findings.counters["clock_monotonic_offset_ns_m0"] == 7
    assert findings.counters["clock_error_ns_m1"] == 3_000_000
    assert findings.problems == ()


def test_another_inventory_than_planned_is_refused(tmp_path: Path):
    fleet = [Machine(f"m{i}", f"192.0.2.{i}", "k", "h") for i in range(3)]
    run_dir = plan_run(tmp_path, fleet)
    moved = [msgspec.structs.replace(machine, host="192.0.2.99") for machine in saved_inventory(run_dir).machines]
    save_inventory(Inventory(tuple(moved)), run_dir)
    with pytest.raises(TestbedError, match="changed since the plan"):
        RemoteTestbed(read_plan(run_dir).plan, run_dir).boot()
