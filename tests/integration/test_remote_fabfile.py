"""The Fabric tasks, run by ``fab`` against machines in namespaces."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.errors import ExperimentError
from harness.experiment.inventory import Machine
from tests.integration.deployment_machines import fab, machines, sandboxed

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
TASKS = {"check", "ship", "clocks", "status", "stop", "collect", "clean"}


def write_inventory(path: Path, fleet: list[Machine]) -> Path:
    fields = ("name", "host", "user", "port", "key", "known_hosts", "python", "work")
    rows = ["\n".join(f"{name} = {json.dumps(getattr(m, name))}" for name in fields) for m in fleet]
    path.write_text("\n".join(f"[[machines]]\n{row}\n" for row in rows))
    return path


def test_the_tasks_are_listed():
    argv = [sys.executable, "-m", "fabric", "-r", "playbooks", "--list"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    listed = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert listed.returncode == 0, listed.stderr
    assert {line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ")} >= TASKS


@sandboxed
def test_check_ship_and_clocks_reach_every_machine(tmp_path: Path):
    with machines(tmp_path, 2) as fleet:
        inventory = write_inventory(tmp_path / "inventory.toml", [machine for _, machine in fleet])
        checked = fab("check", "--inventory", str(inventory))
        assert checked.returncode == 0, checked.stderr
        assert set(answer := json.loads(checked.stdout)) == {"m0", "m1", "captures"}
        assert answer["captures"] == "every machine captures"
        assert answer["m0"]["free_mib"] > 0
        assert answer["m0"]["login_shell"] == "/bin/sh"
        assert [box.files(machine.work) for box, machine in fleet] == [[], []], "a check leaves nothing"
        assert "sent" in fab("ship", "--inventory", str(inventory)).stdout
        assert "had" in fab("ship", "--inventory", str(inventory)).stdout
        clocks = json.loads(fab("clocks", "--inventory", str(inventory)).stdout)
        assert clocks["m1"]["error_ns"] > 0
        assert json.loads(fab("clean", "--inventory", str(inventory)).stdout)["m0"] == {"removed": [], "kept": []}


@sandboxed
def test_a_failure_is_one_line_and_an_exit_status(tmp_path: Path):
    with machines(tmp_path, 1) as [(_, machine)]:
        inventory = write_inventory(tmp_path / "inventory.toml", [machine])
        inventory.write_text(inventory.read_text().replace("user_key", "nothing"))
        done = fab("check", "--inventory", str(inventory))
        assert done.returncode == 1
        assert done.stderr.strip().startswith("connect failed on m0: ")
        assert len(done.stderr.strip().splitlines()) == 1


def test_check_of_a_damaged_inventory_says_so_in_one_line(tmp_path: Path):
    (tmp_path / "unknown.toml").write_text('[[machines]]\nname = "a"\nport_number = 3\n')
    for name, problem in (("missing.toml", "No such file"), ("unknown.toml", "port_number")):
        done = fab("check", "--inventory", str(tmp_path / name))
        assert done.returncode == ExperimentError.exit_code
        assert problem in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


@sandboxed
def test_check_names_a_port_at_which_nobody_listens(tmp_path: Path):
    with machines(tmp_path, 1) as [(_, machine)]:
        known = Path(machine.known_hosts)
        known.write_text(re.sub(r"^\S+", f"[{machine.host}]:9", known.read_text(), flags=re.MULTILINE))
        said = check_fails(write_inventory(tmp_path / "inventory.toml", [msgspec.structs.replace(machine, port=9)]))
        assert said == f"connect failed on m0: port 9 of {machine.host}: Connection refused; does sshd listen there?"


def check_fails(inventory: Path) -> str:
    done = fab("check", "--inventory", str(inventory))
    assert done.returncode == 1
    return done.stderr.strip()


@sandboxed
def test_check_names_a_port_that_cannot_be_used_or_reached(tmp_path: Path):
    with machines(tmp_path, 2) as [(box, first), (other, second)]:
        inventory = write_inventory(tmp_path / "inventory.toml", [first, second])
        program = "import socket, sys; s = socket.create_server(('', 9000)); print(flush=True); sys.stdin.read()"
        taken = [*other.enter, sys.executable, "-c", program]
        with subprocess.Popen(taken, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            said = check_fails(inventory)
            process.communicate()
        problem = f"cannot listen on {other.address}:9000: Address already in use"
        assert said.startswith(f"listen on the peers' ports failed on m1: {problem}")
        subprocess.run([*box.enter, "ip", "route", "add", "blackhole", f"{other.address}/32"], check=True)
        said = check_fails(inventory)
        assert said.startswith(f"reach the peers' ports failed on m0: does not reach m1 at {other.address}:9000 (")


@sandboxed
def test_check_names_an_address_that_does_not_answer_to_the_probers(tmp_path: Path):
    with machines(tmp_path, 2) as [(box, first), (other, second)]:
        inventory = write_inventory(tmp_path / "inventory.toml", [first, second])
        subprocess.run([*box.enter, "ip", "rule", "add", "ipproto", "udp", "prohibit"], check=True)
        said = check_fails(inventory)
        assert said.startswith(f"probe failed on m0: no answer at UDP port 9300 of {other.address}; m1: ")


@sandboxed
def test_check_says_why_packets_cannot_be_captured(tmp_path: Path):
    with machines(tmp_path, 1) as [(box, machine)]:
        [server] = box.servers()
        for name in ("tcpdump", "dumpcap"):
            hide = ["nsenter", "-t", server, "--mount", "mount", "--bind", "/dev/null", f"/usr/bin/{name}"]
            subprocess.run(hide, check=True)
        checked = fab("check", "--inventory", str(write_inventory(tmp_path / "inventory.toml", [machine])))
        said = json.loads(checked.stdout)["captures"]
        assert said == "m0 cannot capture: tcpdump is not installed; dumpcap is not installed"


@sandboxed
def test_check_names_the_user_and_the_key_of_a_failed_login(tmp_path: Path):
    with machines(tmp_path, 2) as [(_, first), (_, second)]:
        inventory = write_inventory(tmp_path / "inventory.toml", [msgspec.structs.replace(first, key=second.key)])
        assert check_fails(inventory) == (
            f"connect failed on m0: Authentication failed for user {first.user!r} with the key {second.key}"
        )


@sandboxed
def test_check_says_that_tar_is_missing(tmp_path: Path):
    with machines(tmp_path, 1) as [(box, machine)]:
        [server] = box.servers()
        subprocess.run(["nsenter", "-t", server, "--mount", "mount", "--bind", "/dev/null", "/usr/bin/tar"], check=True)
        said = check_fails(write_inventory(tmp_path / "inventory.toml", [machine]))
        assert said.startswith("check files failed on m0: ")
        assert "tar" in said
