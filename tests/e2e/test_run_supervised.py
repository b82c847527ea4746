"""A part of a run that dies: said at once, a reason against the run, and the end of it; what there is is collected."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.experiment.loader import load_experiment
from harness.planning import make_plan, write_plan
from metrics.rundir import Manifest
from tests.e2e.parts import find_part
from tests.e2e.run_experiment import ROOT, await_step
from tests.examples import long_unless

pytestmark = pytest.mark.root

EXPERIMENT = """
name = "supervised"
protocol = "complete"
seed = 7
supervision = "{supervision}"

[underlay]
kind = "uniform"
hosts = 3
delay_ms = 5

[workload]
topics = 2
publish_rate_per_s = 10
warmup_s = 0.5
duration_s = {duration_s}
cooldown_s = 0.5

[interests]
ratio = 1.0

[prometheus]
enabled = {scraped}
"""

LONG_S = 300
"""Two seconds are promised; the others are for a machine that does other things as well."""

NAMES = {
    "agent": "the agent on sandbox",
    "process": "the data plane's process",
    "monitor": "the data plane's monitor",
    "writer": "the data plane's writer",
    "capture": "the capture in hosts",
    "prober": "the prober",
    "prometheus": "Prometheus",
}
"""What each part is called in messages."""

USUAL = {"agent", "process"}
"""The parts whose death ends a run in every run of the tests, besides ``GONE_ON``: one place asks every part whether it
has ended."""

GONE_ON = ("prometheus", "capture")
"""The parts that a run loses that is to continue."""


def start(folder: Path, supervision: str, duration_s: float, *, scraped: bool) -> subprocess.Popen[str]:
    """The running stage of a small run in a sandbox, with Prometheus or without: its answers may take minutes."""
    source = folder / "experiment.toml"
    text = EXPERIMENT.format(supervision=supervision, duration_s=duration_s, scraped=str(scraped).lower())
    source.write_text(text)
    write_plan(make_plan(load_experiment(source), source), folder / "run")
    program = (
        "import sys\nfrom pathlib import Path\nfrom harness.machine import sandbox\n"
        "argv = [sys.executable, '-m', 'harness.stages.execution', sys.argv[1]]\n"
        "sys.exit(sandbox.run(argv, keep=[Path(sys.argv[1])]))"
    )
    argv = [sys.executable, "-c", program, str(folder / "run")]
    return subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def kill(run: subprocess.Popen[str], part: str) -> None:
    os.kill(find_part(run.pid, part), signal.SIGKILL)


@pytest.mark.parametrize("part", long_unless(USUAL, NAMES))
def test_a_lost_part_is_said_at_once_and_ends_the_run(tmp_path: Path, part: str) -> None:
    name = NAMES[part]
    run = start(tmp_path, "abort", LONG_S, scraped=part == "prometheus")
    await_step(run, "warmup")
    kill(run, part)
    await_step(run, "trellis run: ", saying=name)
    _, said = run.communicate(timeout=LONG_S)
    assert (run.returncode, "Traceback" in said) == (0, False), said
    manifest = msgspec.json.decode((tmp_path / "run/manifest.json").read_bytes(), type=Manifest)
    assert any(severity == "invalid" and name in text for severity, text in manifest.problems), manifest.problems
    phases = {phase.name: phase for phase in manifest.phases}
    assert phases.keys() >= {"workload", "stop", "collect"}
    assert phases["workload"].end_ns - phases["workload"].start_ns < LONG_S * 10**9
    assert "probe_after" not in phases
    assert len(list((tmp_path / "run/trace").glob("*.jsonl"))) == 3
    if part != "agent":
        assert {(state.state, state.status) for state in manifest.final_states} == {("exited", 0)}


def test_a_run_that_is_to_continue_goes_on_to_its_end(tmp_path: Path) -> None:
    run = start(tmp_path, "continue", 4, scraped=True)
    await_step(run, "warmup")
    for part in GONE_ON:
        kill(run, part)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    manifest = msgspec.json.decode((tmp_path / "run/manifest.json").read_bytes(), type=Manifest)
    for name in (NAMES[part] for part in GONE_ON):
        assert len(re.findall(rf"{name}: ended by SIGKILL.*; the run goes on", said)) == 1, said
        assert any(severity == "invalid" and name in text for severity, text in manifest.problems), manifest.problems
    phases = {phase.name: phase for phase in manifest.phases}
    assert phases["workload"].end_ns - phases["workload"].start_ns == 4_000_000_000
    assert "probe_after" in phases
