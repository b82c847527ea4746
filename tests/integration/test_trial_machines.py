"""``trellis machines``: machines that the harness reaches over SSH, and that reach each other and nothing else."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.deployment import Deployment, make_token
from harness.experiment.inventory import Inventory, load_inventory

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]


@contextmanager
def printed_inventory(folder: Path, *options: str) -> Iterator[tuple[Inventory, subprocess.Popen[str]]]:
    """Two machines of the command, and the inventory that it prints."""
    command = [sys.executable, "-m", "harness.cli", "machines", "2", *options]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("#"):
                    break
            path = folder / "printed.toml"
            path.write_text("".join(lines))
            yield load_inventory(path), process
        finally:
            process.send_signal(signal.SIGINT)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_machines_reach_each_other_and_nothing_else_and_ctrl_c_leaves_nothing(tmp_path: Path):
    written = tmp_path / "inventory.toml"
    with printed_inventory(tmp_path, "--hosts", "3", "--inventory", str(written)) as (inventory, process):
        assert load_inventory(written) == inventory
        alpha, beta = inventory.machines
        assert (alpha.hosts, beta.hosts) == (3, 3)
        with Deployment(inventory.machines, make_token(), tmp_path / "logs") as deployment:
            deployment.connect()
            assert set(deployment.check_versions()) == {"alpha", "beta"}
            session = deployment.sessions["alpha"]
            assert session.run("ip -o route") == "10.77.0.0/24 dev eth0 proto kernel scope link src 10.77.0.1 \n"
            question = "import socket, sys; print(socket.create_server(('', 9000)).getsockname())"
            assert "9000" in deployment.sessions["beta"].run_python(question)
            answer = "import socket; print(socket.socket().connect_ex(('10.77.0.2', 9)))"
            assert session.run_python(answer).strip() == "111", "a refusal comes from the other machine"
            assert session.run("echo > /etc/trellis-was-here || echo refused") == "refused\n"
        folder = Path(alpha.key).parents[1]
        assert folder.stat().st_mode & 0o777 == 0o700
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not folder.exists()
        assert not any(listens(machine.port) for machine in inventory.machines)


def test_machines_end_by_themselves_after_a_time(tmp_path: Path):
    with printed_inventory(tmp_path, "--for", "0") as (inventory, process):
        assert process.wait(60) == 0
        assert not Path(inventory.machines[0].key).parents[1].exists()


def test_an_impossible_number_of_machines_is_refused():
    command = [sys.executable, "-m", "harness.cli", "machines", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "trellis machines: N: expected 1 to 12 machines, got 0\n")
