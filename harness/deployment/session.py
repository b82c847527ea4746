"""One machine, over one SSH connection."""

from __future__ import annotations

import contextlib
import hashlib
import io
import secrets
import shlex
import socket
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import fabric
import msgspec
import paramiko  # type: ignore[import-untyped]
from invoke.exceptions import CommandTimedOut, UnexpectedExit

from harness.deployment.package import Package
from harness.inventory import Machine

CONNECT_S = 20.0
COMMAND_S = 60.0
KEEPALIVE_S = 10
LOST_S = 30
"""Unanswered for this long, a machine counts as lost."""

FAULTS = (OSError, EOFError, paramiko.SSHException, UnexpectedExit, CommandTimedOut, tarfile.TarError)
"""What a machine can do to a step. Anything else is a bug of ours and is not caught."""


class StepError(Exception):
    """A machine answered, and the answer is a refusal."""


class Session:
    """A connection, the run's folder on the machine, and the agent whose life hangs on the connection.

    Every command, file and the agent's lifeline are channels of the one connection: an sshd limits sessions per
    connection and connections at a time, and one connection a machine stays clear of both limits.
    """

    def __init__(self, machine: Machine, run_id: str) -> None:
        self.machine = machine
        # A digest, since the agent's socket below must keep within the 108 bytes of a socket's path.
        self.work = PurePosixPath(machine.work) / hashlib.sha256(run_id.encode()).hexdigest()[:16]
        self._connection = _connection(machine)
        self._package = PurePosixPath(machine.work) / "packages"
        self._agent: paramiko.Channel | None = None
        self._reader: threading.Thread | None = None

    def open(self) -> None:
        """Connect. A machine whose host key is not in its ``known_hosts`` is refused."""
        # Fabric's own default would accept any key; an own client knows only this file and adds none.
        client = self._connection.client
        client.load_host_keys(self.machine.known_hosts)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        self._connection.open()
        transport = self._connection.transport
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_S * 1000)
        transport.set_keepalive(KEEPALIVE_S)

    def close(self) -> None:
        """Disconnect. Whatever the agent still runs ends with the connection."""
        self._connection.close()
        self._finish_log()

    def run(self, command: str, timeout_s: float = COMMAND_S) -> str:
        """A shell command's standard output.

        Raises:
            UnexpectedExit, CommandTimedOut: it failed; carries its words.
        """
        return str(self._connection.run(command, hide=True, in_stream=False, timeout=timeout_s).stdout)

    def run_python(self, source: str, *arguments: str) -> str:
        """The output of a few lines of Python on the machine."""
        return self.run(shlex.join([self.machine.python, "-c", source, *arguments]))

    def ship(self, package: Package) -> bool:
        """Unpack the package on the machine unless a package of this hash is there.

        Returns:
            Whether it was sent.
        """
        folder = PurePosixPath(self.machine.work) / "packages"
        self._package = folder / package.sha256[:16]
        there = self._connection.run(f"test -d {self._package}", hide=True, warn=True, in_stream=False)
        if there.ok:
            return False
        self.run(f"mkdir -p -m 700 {folder}")
        part = f"{self._package}.{secrets.token_hex(4)}.part"  # another run may ship the same package meanwhile
        self.put(part + ".tar.gz", package.archive)
        # Moved into place in one step: a folder of this name is always whole.
        unpack = f"mkdir {part} && tar -xzf {part}.tar.gz -C {part} && rm {part}.tar.gz"
        place = f"mv -T {part} {self._package} 2>/dev/null || {{ rm -rf {part}; test -d {self._package}; }}"
        self.run(f"{unpack} && {{ {place}; }}")
        return True

    def put(self, path: str | PurePosixPath, content: bytes) -> None:
        """Write a file on the machine."""
        self._connection.put(io.BytesIO(content), str(path))

    def start_agent(self, log: Path) -> None:
        """Start the agent of the run's folder; its words go to ``log``.

        Its standard input stays open as long as this session does: the agent takes the end of it for the end of the
        run, so a lost connection leaves no peer behind.
        """
        channel = self.open_channel(f"exec {self._python_here()} -m peer.runtime.agent {self.work}", combine=True)
        self._agent = channel
        self._reader = threading.Thread(target=_log_agent, args=(channel, log), daemon=True)
        self._reader.start()

    def call(self, verb: str, *arguments: str, timeout_s: float = COMMAND_S) -> Any:  # noqa: ANN401 - JSON
        """Ask the running agent; the decoded JSON answer."""
        words = shlex.join([str(self.work), "--call", verb, *arguments])
        answer = self.run(f"{self._python_here()} -m peer.runtime.agent {words}", timeout_s)
        return msgspec.json.decode(answer)

    @property
    def agent_status(self) -> int | None:
        """The agent's exit status; None while it runs."""
        if self._agent is None or not self._agent.exit_status_ready():
            return None
        return int(self._agent.recv_exit_status())

    def wait_agent(self, timeout_s: float) -> int:
        """Wait for the agent to end; its exit status.

        Raises:
            StepError: it did not, or a signal ended it, or the connection is gone and with it the agent.
        """
        if self._agent is None:
            raise StepError("no agent was started")
        if not self._agent.status_event.wait(max(0.0, timeout_s)):
            raise StepError("the agent still runs")
        status = int(self._agent.recv_exit_status())
        self._finish_log()
        if status < 0:
            raise StepError("the agent was killed, or the connection to it was lost")
        return status

    def fetch(self, names: Mapping[str, str], destination: Path) -> None:
        """Copy files and folders of the run's folder, as far as they exist, into ``destination``, as one tar stream.

        ``names`` maps each to its name there.

        Raises:
            StepError: the machine could not read them all.
        """
        present = f"for name in {shlex.join(names)}; do [ ! -e $name ] || echo $name; done"
        channel = self.open_channel(f"cd {self.work} && {present} | tar -czf - -T -")

        def rename(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
            safe = tarfile.data_filter(member, folder)
            first, _, rest = safe.name.partition("/")
            return safe.replace(name=f"{names[first]}/{rest}".rstrip("/"), deep=False)

        with tarfile.open(fileobj=cast("IO[bytes]", channel.makefile("rb")), mode="r|gz") as archive:
            archive.extractall(destination, filter=rename)
        if (status := channel.recv_exit_status()) != 0:
            words = channel.makefile_stderr("rb").read().decode(errors="replace")
            raise StepError(f"tar ended with status {status}: {words.strip()}")

    def _python_here(self) -> str:
        return f"env PYTHONPATH={self._package} PYTHONDONTWRITEBYTECODE=1 {shlex.quote(self.machine.python)}"

    def open_channel(self, command: str, *, combine: bool = False) -> paramiko.Channel:
        """A channel on which the command runs; with ``combine`` its errors come with its output."""
        channel: paramiko.Channel = self._connection.create_session()
        channel.set_combine_stderr(combine)
        channel.exec_command(command)
        return channel

    def _finish_log(self) -> None:
        if self._reader is not None:
            self._reader.join(timeout=5)


def _connection(machine: Machine) -> fabric.Connection:
    """A Fabric connection that takes nothing from the user's own set-up of SSH and Fabric: the machine says it all."""
    return fabric.Connection(
        machine.host,
        user=machine.user,
        port=machine.port,
        connect_timeout=CONNECT_S,
        config=fabric.Config(lazy=True),  # reads no file
        connect_kwargs={
            "key_filename": machine.key,
            "allow_agent": False,
            "look_for_keys": False,
            "banner_timeout": CONNECT_S,
            "auth_timeout": CONNECT_S,
        },
    )


def _log_agent(channel: paramiko.Channel, path: Path) -> None:
    with path.open("wb", buffering=0) as log:
        while data := channel.recv(1 << 16):
            with contextlib.suppress(OSError):  # the disk is full, and the agent must not have to wait for us
                log.write(data)
