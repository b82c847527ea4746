"""The running stage against a testbed that only notes when it was asked."""

import errno
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.deployment.agents import Site, build_agent_specs
from harness.deployment.fleet import Deployment
from harness.errors import TestbedError
from harness.experiment.inventory import Machine
from harness.experiment.loader import load_experiment
from harness.machine.disk_reserve import Reserve
from harness.planning import make_plan, write_plan
from harness.stages import execution
from metrics.rundir import ClockOffset, Manifest
from metrics.rundir.files import CLOCKS_FILE, RESERVE_FILE

EXPERIMENT = """
name = "brief"
protocol = "complete"
underlay = { kind = "uniform", hosts = 2 }
workload = { warmup_s = 0.1, duration_s = 1.0, publish_rate_per_s = 50, cooldown_s = 0.2 }
"""


class NotingTestbed:
    """What ``Run`` asks while it performs; the instants of its questions are virtual, as a run's phases are."""

    def __init__(self, *_: object) -> None:
        self.resources_ns: list[int] = []
        self.cpu_ns: list[int] = []

    def lost(self) -> dict[str, str]:
        return {}

    def cpu_s(self) -> float:
        self.cpu_ns.append(time.monotonic_ns())
        return 2.5 * len(self.cpu_ns)

    def sites(self) -> tuple[()]:
        return ()

    def metrics(self) -> dict[str, tuple[str, int]]:
        return {"m": ("127.0.0.1", 9102), "dataplane": ("127.0.0.1", 9101)}

    def resources(self) -> dict[str, float]:
        self.resources_ns.append(time.monotonic_ns())
        return {"peer_processes": 2.0}


class WaitingDeployment:
    waited_ns = 0

    def start(self, zero_epoch_ns: int) -> dict[str, int]:
        return {"m": 0}

    def faults(self) -> dict[str, str]:
        return {}

    def wait(self, timeout_s: float) -> dict[str, int]:
        self.waited_ns = time.monotonic_ns()
        return {}


class DeploymentOnFullDisk(Deployment):
    """One machine, which sends what it was asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__([Machine("m", "192.0.2.1", "k", "h")], "t", folder)
        self.had_reserve = True

    def read_clocks(self) -> dict[str, ClockOffset]:
        return {"m": ClockOffset(0, 0, 0)}

    def each(self, *_: object, **__: object) -> dict[str, Any]:
        self.had_reserve = (self.logs / RESERVE_FILE).exists()
        return {}


def test_a_disk_that_is_full_at_the_collection_is_a_problem_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, run_dir = tmp_path / "brief.toml", tmp_path / "run"
    file.write_text(EXPERIMENT)
    write_plan(make_plan(load_experiment(file, []), file), run_dir)
    monkeypatch.setattr(execution, "make_testbed", NotingTestbed)
    run, deployment = execution.Execution(run_dir), DeploymentOnFullDisk(run_dir)
    assert (run_dir / RESERVE_FILE).exists()

    def write(_: Path, __: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("harness.deployment.fleet.write_document", write)
    run.collect(deployment)
    assert not deployment.had_reserve
    [(severity, text)] = run.problems
    assert severity == "invalid"
    assert text.startswith("not everything was collected: ")
    assert "No space left" in text
    assert not (run_dir / CLOCKS_FILE).exists()


def test_what_peers_use_is_read_when_it_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory after the judged span and before the peers end, since reading it pauses a process; processor time, which
    pauses none, at both ends of the workload."""
    file, run_dir = tmp_path / "brief.toml", tmp_path / "run"
    file.write_text(EXPERIMENT)
    write_plan(make_plan(load_experiment(file, []), file), run_dir)
    monkeypatch.setattr(execution, "make_testbed", NotingTestbed)
    run, deployment = execution.Execution(run_dir), WaitingDeployment()
    run.lead_s = 0.0
    run.perform(deployment)  # type: ignore[arg-type]
    cooldown_end_ns = next(phase.end_ns for phase in run.phase_log.phases if phase.name == "cooldown")
    (asked_ns,) = run.testbed.resources_ns  # type: ignore[attr-defined]
    assert cooldown_end_ns <= asked_ns <= deployment.waited_ns
    workload = next(phase for phase in run.phase_log.phases if phase.name == "workload")
    begin_ns, end_ns = run.testbed.cpu_ns  # type: ignore[attr-defined]
    assert workload.start_ns <= begin_ns
    assert workload.end_ns <= end_ns <= asked_ns
    assert run.resources == {"peers_cpu_s": 2.5, "peer_processes": 2.0}


@pytest.mark.parametrize(("served", "jobs"), [("true", ["agent", "dataplane"]), ("false", ["dataplane"])])
def test_what_serves_no_metrics_is_not_scraped(
    served: str, jobs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``peer.metrics`` agents serve none either: their specification says so."""
    file, run_dir = tmp_path / "brief.toml", tmp_path / "run"
    file.write_text(EXPERIMENT)
    write_plan(make_plan(load_experiment(file, [f"peer.metrics={served}"]), file), run_dir)
    monkeypatch.setattr(execution, "make_testbed", NotingTestbed)
    run = execution.Execution(run_dir)
    assert [target.job for target in run.targets()] == jobs
    site = Site(0, "m", ("127.0.0.1", 9000), ("127.0.0.1", 9100))
    [spec] = build_agent_specs(run.plan.experiment, [site], run.testbed.metrics()).values()
    assert (spec.agent_metrics is not None) == ("agent" in jobs)


def test_a_run_that_fails_gives_its_reserve_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def fail(run_dir: Path) -> Manifest:
        held.append(Reserve(run_dir))
        assert (run_dir / RESERVE_FILE).exists()
        raise TestbedError("boot", "no")

    monkeypatch.setattr(execution, "stage_of", lambda run_dir: fail)
    monkeypatch.setattr(sys, "argv", ["running", str(tmp_path)])
    assert execution.main() == TestbedError("boot", "no").exit_code
    assert list(tmp_path.iterdir()) == []
