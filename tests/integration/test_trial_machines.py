"""``trellis machines``: machines that the harness reaches over SSH, and that reach each other and nothing else."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.deployment.fleet import Deployment, make_token
from harness.experiment.inventory import Inventory, inventory_text, load_inventory
from metrics.rundir import FAILED, JUDGED, NOT_JUDGED, PASSED, RunDir, Scope
from tests.e2e.run_experiment import QUICKLY, speaks_of_load, trellis
from tests.integration.trial_machines import ROOT, printed_inventory

pytestmark = pytest.mark.root

MAY_BE_SLOW = {"send_delay", "node_send_delay", "node_receive_delay"}
"""Checks of the machine, besides those that speak of load, which a loaded one fails: they are not what is tested."""


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_machines_reach_each_other_and_nothing_else_and_ctrl_c_leaves_nothing(tmp_path: Path):
    written = tmp_path / "inventory.toml"
    with printed_inventory(tmp_path, "--hosts", "3", "--inventory", str(written)) as (inventory, process):
        assert load_inventory(written) == inventory
        alpha, beta = inventory.machines
        assert (len(alpha.addresses), len(beta.addresses)) == (3, 3)
        with Deployment(inventory.machines, make_token(), tmp_path / "logs") as deployment:
            deployment.connect()
            assert set(deployment.check_versions()) == {"alpha", "beta"}
            session = deployment.sessions["alpha"]
            assert session.run("ip -o route") == "10.77.0.0/16 dev eth0 proto kernel scope link src 10.77.0.1 \n"
            question = "import socket, sys; print(socket.create_server(('', 9000)).getsockname())"
            assert "9000" in deployment.sessions["beta"].run_python(question)
            answer = "import socket; print(socket.socket().connect_ex(('10.77.1.1', 9)))"
            assert session.run_python(answer).strip() == "111", "a refusal comes from the other machine"
            assert session.run("echo > /etc/trellis-was-here || echo refused") == "refused\n"
        folder = Path(alpha.key).parents[1]
        assert folder.stat().st_mode & 0o777 == 0o700
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0
        assert not folder.exists()
        assert not any(listens(machine.port) for machine in inventory.machines)


EXPERIMENT = """
name = "tried"
protocol = "gossipsub"
testbed = "remote"
inventory = "inventory.toml"
underlay = { kind = "uniform", hosts = 6 }
workload = { topics = 2, publish_rate_per_s = 10, warmup_s = 4, duration_s = 6, cooldown_s = 4 }
interests = { ratio = 1.0 }
"""


@pytest.mark.slow
@pytest.mark.parametrize("own_clock", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_run_over_two_machines_is_judged_from_captures_and_round_trips(own_clock: bool, tmp_path: Path):
    """Also if the machines' clocks are taken for others than ours, and estimated."""
    experiment, run_dir = tmp_path / "experiment.toml", tmp_path / "run"
    experiment.write_text(EXPERIMENT)
    with printed_inventory(tmp_path, "--hosts", "3", "--inventory", str(tmp_path / "inventory.toml")) as (inventory, _):
        machines = tuple(msgspec.structs.replace(each, own_clock=own_clock) for each in inventory.machines)
        (tmp_path / "inventory.toml").write_text(inventory_text(Inventory(machines)))
        command = trellis("run", experiment, *QUICKLY, "--out", run_dir)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        with Deployment(inventory.machines, make_token(), tmp_path / "logs") as deployment:
            deployment.connect()
            left = deployment.each(
                "look", lambda session: session.run("ls /tmp/trellis; pgrep -f '[t]cpdump|stdin.[b]uffer' | cat")
            )
    assert set(left.values()) == {"packages\n"}
    run = RunDir(run_dir)
    outcomes = {check.name: check.outcome for check in run.summary.checks}
    judged = {name for name, outcome in outcomes.items() if outcome in (PASSED, FAILED)}
    assert {"frame_sets", "stream_coverage", "link_agreement", "open_connections", "captured_round_trips"} <= judged
    wrong = {name for name, outcome in outcomes.items() if outcome in (FAILED, NOT_JUDGED)} - MAY_BE_SLOW
    assert not [name for name in wrong if not speaks_of_load(name.replace("_", " "))], done.stdout
    assert run.summary.scope == Scope(
        **dict.fromkeys(("network", "machine", "frames", "deliveries", "packets"), JUDGED)
    )
    assert [path.name for path in run.captures] == ["alpha.pcapng", "beta.pcapng"]
    assert not (run_dir / "machine_capture").exists()
    assert (outcomes["clocks"] == PASSED) == own_clock


def test_machines_end_by_themselves_after_a_time(tmp_path: Path):
    with printed_inventory(tmp_path, "--for", "0") as (inventory, process):
        assert process.wait(300) == 0
        assert not Path(inventory.machines[0].key).parents[1].exists()


def test_an_impossible_number_of_machines_is_refused():
    command = [sys.executable, "-m", "harness.cli", "machines", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "trellis machines: N: expected 1 to 12 machines, got 0\n")
