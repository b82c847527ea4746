"""A testbed that another distribution adds goes the whole way of a run: check, plan, run, verdict."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.run_experiment import QUICKLY

BENCH = '''
from harness.stages.simulation import simulate_planned
from metrics.rundir import Placement


def place(experiment, source, nodes):
    """Place the nodes."""
    return tuple(Placement(node, node, "bench", f"192.0.2.{node + 1}", "") for node in range(nodes))


def stage(run_dir):
    """Run what was planned."""
    (run_dir / "bench.txt").write_text("was here")
    return simulate_planned(run_dir)
'''

REGISTRATION = """
from harness.testbeds.description import Description, HostLimit
from harness.testbeds.registry import TESTBEDS

TESTBEDS["bench"] = Description(
    name="bench",
    text="a toy",
    can=frozenset({"shape", "simulate"}),
    cannot={"command": "its programs are glued in", "capture": "it has no camera"},
    place="bench:place",
    estimate="harness.planning.needs:estimate_simulation",
    stage="bench:stage",
    limit=HostLimit(8, "at the bench"),
)
"""
"""Python imports ``sitecustomize`` in every process, so in the running stage, too."""

EXPERIMENT = """
name = "added"
protocol = "complete"
testbed = "bench"
underlay = { kind = "uniform", hosts = 4 }
workload = { topics = 2, duration_s = 5.0, publish_rate_per_s = 4, payload_bytes = 64 }
interests = { ratio = 0.5 }
capture = { enabled = false }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"bench.py": BENCH, "sitecustomize.py": REGISTRATION, "added.toml": EXPERIMENT}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def trellis(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "harness.cli", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_added_testbed_is_checked_and_planned(folder: Path) -> None:
    checked = trellis(folder, "check", "added.toml")
    assert checked.returncode == 0, checked.stderr
    assert 'capture.enabled has no effect with testbed = "bench": it has no camera' in checked.stdout
    for words, problem in (
        (('peer.command=["node"]',), '--set peer.command=["node"]: its programs are glued in'),
        (("underlay.hosts=9",), "--set underlay.hosts=9: expected at most 8 hosts at the bench, got 9"),
        (("testbed=desk",), '--set testbed=desk: expected "bench", "emulated", "remote" or "simulated", got'),
    ):
        refused = trellis(folder, "plan", "added.toml", "--set", *words)
        assert refused.returncode == 2
        assert problem in refused.stderr


def test_an_added_testbed_is_run_and_judged(folder: Path) -> None:
    done = trellis(folder, "run", "added.toml", "--testbed", "bench", *QUICKLY, "--out", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert (folder / "run/bench.txt").read_text() == "was here"
    manifest = json.loads((folder / "run/manifest.json").read_text())
    assert (manifest["testbed"], manifest["can"]) == ("bench", ["shape", "simulate"])
    summary = json.loads(done.stdout)
    assert summary["verdict"] == "valid"
    details = {check["name"]: check["detail"] for check in summary["checks"]}
    assert "the bench testbed captures no packets" in details["captured"]
    assert "in virtual time no publication is late" in details["publish_lag"]
