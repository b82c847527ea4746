"""``trellis run --on``: the running stage on another machine, of which nothing is left however it ends."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from harness.deployment.fleet import Deployment, make_token
from harness.experiment.inventory import Inventory, inventory_text
from metrics.rundir import RunDir
from tests.e2e.run_experiment import QUICKLY, trellis
from tests.integration.trial_machines import ROOT, printed_inventory

pytestmark = pytest.mark.root

EXPERIMENT = """
name = "elsewhere"
protocol = "complete"
underlay = {{ kind = "uniform", hosts = 3, delay_ms = 10 }}
workload = {{ topics = 1, publish_rate_per_s = 10, warmup_s = 1, duration_s = {duration_s}, cooldown_s = 2 }}
interests = {{ ratio = 1.0 }}
"""


@contextmanager
def started(folder: Path, machine: str, duration_s: int) -> Iterator[subprocess.Popen[str]]:
    """The command, with the experiment and the inventory of ``printed_inventory`` in a folder."""
    (folder / "experiment.toml").write_text(EXPERIMENT.format(duration_s=duration_s))
    words = ("--out", folder / "run", "--on", f"{folder / 'printed.toml'}:{machine}")
    command = trellis("run", folder / "experiment.toml", *QUICKLY, *words)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        yield process


def ask(inventory: Inventory, folder: Path, command: str) -> str:
    """What a command prints on the machine beta."""
    with Deployment(inventory.machines[1:], make_token(), folder / "logs") as deployment:
        deployment.connect()
        [said] = deployment.each("ask", lambda session: session.run(command)).values()
    return said


def await_nothing_left(inventory: Inventory, folder: Path) -> None:
    """Neither files nor processes; the machine may need a moment after a lost connection."""
    look = "ls /tmp/trellis; grep -lzs '^TRELLIS_RUN=' /proc/[0-9]*/environ | cat"
    deadline_s = time.monotonic() + 300
    while (left := ask(inventory, folder, look)) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert left == ""


def await_line(process: subprocess.Popen[str], beginning: str) -> None:
    assert process.stderr is not None
    assert any(line.startswith(beginning) for line in iter(process.stderr.readline, "")), "it ended early"


@pytest.mark.slow
def test_a_run_on_another_machine_is_analysed_here_and_leaves_nothing_there(tmp_path: Path):
    with printed_inventory(tmp_path) as (inventory, _):
        with started(tmp_path, "beta", 3) as process:
            printed, said = process.communicate(timeout=600)
        await_nothing_left(inventory, tmp_path)
    progress = [line.partition(":")[0] for line in said.splitlines() if not line.startswith("remark")]
    assert progress[:3] == ["plan", "ship to beta", "beta"]
    assert re.search(r"^beta: workload: \d\.\d s$", said, re.MULTILINE)
    assert "machine: beta" in printed.splitlines()
    run = RunDir(tmp_path / "run")
    assert run.summary.headline["delivery_ratio"] == 1
    assert (run.manifest.testbed, run.manifest.machine) == ("emulated", "beta")
    assert run.captures
    assert printed.splitlines()[-1] == f"no report: trellis report {tmp_path / 'run'} writes it"
    assert not (tmp_path / "run/report").exists()
    assert (tmp_path / "run/prometheus/data").exists()


@pytest.mark.slow
def test_an_interrupted_run_on_another_machine_leaves_nothing_there(tmp_path: Path):
    with printed_inventory(tmp_path) as (inventory, _):
        with started(tmp_path, "beta", 300) as process:
            await_line(process, "beta: warmup")
            os.killpg(process.pid, signal.SIGINT)
            said = process.communicate(timeout=300)[1]
        assert process.returncode == 130
        assert "Traceback" not in said
        assert "interrupted; the run on beta has been ended; " in said.splitlines()[-1]
        await_nothing_left(inventory, tmp_path)


@pytest.mark.slow
def test_a_lost_connection_is_said_and_the_machine_cleans_up(tmp_path: Path):
    with printed_inventory(tmp_path) as (inventory, _):
        with started(tmp_path, "beta", 300) as process:
            await_line(process, "beta: warmup")
            # The session of the run is older than the one that asks.
            ask(inventory, tmp_path, "kill $(pgrep -o '^sshd')")
            said = process.communicate(timeout=300)[1]
        assert process.returncode == 1
        assert said.splitlines()[-1].startswith("trellis run: run failed on beta: the connection was lost; the machine")
        await_nothing_left(inventory, tmp_path)


def test_a_machine_without_the_packages_is_refused_with_the_command_that_installs_them(tmp_path: Path):
    with printed_inventory(tmp_path) as (inventory, _):
        bare = tmp_path / "python3"
        bare.symlink_to(Path(sys.executable).resolve())
        machines = tuple(msgspec.structs.replace(each, python=str(bare.resolve())) for each in inventory.machines)
        (tmp_path / "printed.toml").write_text(inventory_text(Inventory(machines)))
        with started(tmp_path, "alpha", 3) as process:
            said = process.communicate(timeout=300)[1]
    assert process.returncode == 1
    assert "check versions failed on alpha: missing msgspec, " in said
    assert "-m pip install msgspec" in said
