"""A deployment to machines whose users have other login shells, whose shells greet, and whose sshd refuses things."""

import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import paramiko  # type: ignore[import-untyped]
import pytest

from harness.deployment.answers import StepError
from harness.deployment.connecting import make_connection, open_connection
from harness.deployment.fleet import Deployment
from harness.deployment.package import build_package
from harness.errors import DeploymentError
from harness.experiment.inventory import Machine
from harness.testbeds.emulated.sshd import serving_ssh, start_sshd
from peer.runtime.children import descendants
from tests.integration.deployment_machines import sandboxed

pytestmark = pytest.mark.root

LOGIN_FILES = {"bash": ".bashrc", "fish": ".config/fish/config.fish", "tcsh": ".tcshrc"}


def greet(home: Path) -> None:
    """Let every shell print before it runs a command, as users' login files do, without an end of the last line."""
    for name in LOGIN_FILES.values():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("echo hello\nprintf 'it is late'\n")


def plant_modules(home: Path) -> None:
    """Put modules in the user's home, where every command starts. An import of one would end the Python there."""
    for name in ("argparse", "json", "select", "socket", "msgspec", "peer", "time", "sitecustomize"):
        (home / f"{name}.py").write_text("import os; os._exit(9)\n")


def add_other_lines(known_hosts: Path) -> None:
    others = "@cert-authority * ssh-ed25519 AAAA\nother.example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA\n"
    known_hosts.write_text(others + known_hosts.read_text())


def use(machine: Machine, folder: Path) -> None:
    """Take every step that gives a machine a command, a file, or a stream."""
    with Deployment([msgspec.structs.replace(machine, own_clock=True)], "r", folder / "logs", held=True) as deployment:
        deployment.connect()
        assert set(deployment.check_versions()) == {"m"}
        assert deployment.ship(build_package()) == {"m": True}
        assert deployment.read_clocks()["m"].error_ns > 0
        session = deployment.sessions["m"]
        session.make_folder(held=True)
        content = bytes(range(256)) * 5000
        session.run(f"mkdir {session.work}/trace")
        session.put(session.work / "trace/0.jsonl", content)
        session.fetch({"trace/0.jsonl": "trace/0.jsonl"}, folder / "run", 1 << 30)
        assert (folder / "run/trace/0.jsonl").read_bytes() == content
        session.start_agent(folder / "agent.log")  # there are no documents for it
        assert session.wait_agent(60) == 2
        assert (folder / "agent.log").read_text().startswith("agent: ")
        with pytest.raises(StepError, match="No space left on device"):
            session.put("/dev/full", content)
    assert not Path(session.work).exists()


@sandboxed
def test_fish_csh_and_bash_work_although_they_greet(tmp_path: Path):
    for shell in LOGIN_FILES:
        home = tmp_path / shell
        with serving_ssh(home, "127.0.0.1", 2222, name="m", shell=shutil.which(shell)) as machine:
            greet(home)
            plant_modules(home)
            add_other_lines(Path(machine.known_hosts))
            direct = subprocess.run(["ssh", *options_of(machine), "true"], capture_output=True, text=True, check=True)
            assert direct.stdout == "hello\nit is late", "the shell reads its login file"
            use(machine, tmp_path / f"of-{shell}")


def options_of(machine: Machine) -> list[str]:
    files = [f"-oUserKnownHostsFile={machine.known_hosts}", "-oBatchMode=yes", "-F", "/dev/null"]
    return ["-i", machine.key, "-p", str(machine.port), *files, f"{machine.user}@{machine.host}"]


@sandboxed
def test_an_account_without_a_shell_is_named(tmp_path: Path):
    with (
        serving_ssh(tmp_path / "a", "127.0.0.1", 2222, name="m", shell=shutil.which("false")) as machine,
        Deployment([machine], "r", tmp_path / "logs") as deployment,
    ):
        deployment.connect()
        with pytest.raises(DeploymentError, match="m: the login shell ran no command: no output"):
            deployment.check_versions()


@sandboxed
def test_a_dropped_connection_is_tried_again(tmp_path: Path):
    """sshd drops whoever comes while another client has not logged in yet."""
    server = start_sshd(tmp_path / "a", "127.0.0.1", 2222, settings=["MaxStartups 1:100:1"])
    waiting = paramiko.Transport((server.machine.host, server.machine.port))
    waiting.start_client()  # and does not log in
    pauses: list[float] = []

    def pause(length_s: float) -> None:
        pauses.append(length_s)
        if len(pauses) == 2:
            sessions = [os.pidfd_open(process) for process in descendants(server.process.pid)]
            waiting.close()
            for session in sessions:
                assert select.select([session], [], [], 60)[0], "sshd ends the session of a client that is gone"
                os.close(session)

    connection = make_connection(server.machine)
    open_connection(connection, server.machine, pause)
    assert connection.is_connected
    connection.close()
    server.stop()
    assert len(pauses) == 2


@sandboxed
def test_a_server_that_drops_every_connection_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    with serving_ssh(tmp_path / "a", "127.0.0.1", 2222, settings=["MaxStartups 1:100:1"]) as machine:
        waiting = paramiko.Transport((machine.host, machine.port))
        waiting.start_client()
        pauses: list[float] = []
        with pytest.raises(StepError, match=r"dropped the connection before the login, 8 times .*MaxStartups"):
            open_connection(make_connection(machine), machine, pauses.append)
        waiting.close()
    assert len(pauses) == 7
    assert sum(pauses) < 31
    assert capfd.readouterr().err == "", "Paramiko prints tracebacks of what it raises"


@sandboxed
def test_a_refused_login_names_the_user_and_the_key(tmp_path: Path):
    with serving_ssh(tmp_path / "a", "127.0.0.1", 2222) as machine:
        refused: dict[str, Any] = {"user": "nobody-here", "key": machine.key}
        with pytest.raises(StepError, match=f"failed for user 'nobody-here' with the key {machine.key}"):
            other = msgspec.structs.replace(machine, **refused)
            open_connection(make_connection(other), other)


def test_a_name_that_cannot_be_resolved_is_one_line(tmp_path: Path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    (tmp_path / "known_hosts").touch()
    machine = Machine("m", "a..b", str(tmp_path / "key"), str(tmp_path / "known_hosts"))
    with pytest.raises(StepError, match=r"'a\.\.b' is no host name"):
        open_connection(make_connection(machine), machine)
