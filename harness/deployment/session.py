"""One machine, over one SSH connection."""

import secrets
import shlex
import threading
from collections.abc import Mapping
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import paramiko  # type: ignore[import-untyped]

from harness.deployment import workspace
from harness.deployment.answers import StepError, log_agent, read_answer, skip_greeting, words_on
from harness.deployment.archive import ArchiveError, extract
from harness.deployment.connecting import make_connection, open_connection
from harness.deployment.login_shell import wrap_command
from harness.deployment.package import Package
from harness.deployment.script import COMMAND_S, Script
from harness.experiment.inventory import Machine
from harness.interpreter import SAFE_PATH

END_S = 15.0
"""How long an agent may take to end its peers and itself."""

FAULTS = (OSError, EOFError, paramiko.SSHException, msgspec.MsgspecError, ArchiveError)
"""The errors that a machine can cause in a step. Other errors are bugs and are not caught."""


_WORKSPACE = resources.files("harness.deployment").joinpath("workspace.py").read_bytes()
_READ_AND_RUN = "import sys; exec(sys.stdin.buffer.read(int(sys.argv.pop(1))))"
_PRESENT = 'while IFS= read -r name; do [ ! -f "$name" ] || [ -L "$name" ] || printf "%s\\n" "$name"; done'
_PACK = "tar --format=gnu --no-recursion -czf - -T -"


class CommandError(StepError):
    """A command ended with a status other than 0; the message has its output."""


class MachineSession:
    """One machine: a connection, the run's folder on the machine, and the agent, which ends with the connection.

    Every command, every file and the agent's lifeline are channels of the one connection: an sshd limits sessions per
    connection and connections at a time, and one connection per machine stays clear of both limits.

    Order of calls: ``open``, ``ship`` (from then on ``work`` is known), ``make_folder``, ``put``, ``start_agent``, any
    number of ``call``, ``wait_agent`` or ``end_agent``, ``fetch``, ``remove_folder`` or ``keep_folder``, ``close``.
    Methods raise ``StepError`` if the machine refuses and one of ``FAULTS`` if the connection or the answer is broken;
    whoever calls turns both into a ``DeploymentError``. What a machine sends is bounded in time and bytes
    (``harness.deployment.answers``, ``archive``).

    Attributes:
        connection: the SSH connection.
        base: the work folder on the machine; None before ``ship``.
    """

    def __init__(self, machine: Machine, token: str) -> None:
        self.machine = machine
        self._token = token
        self._marker = f"trellis-{secrets.token_hex(8)}"
        self.connection = make_connection(machine)
        self.base: PurePosixPath | None = None
        self._package: PurePosixPath | None = None
        self._made = False
        self._holder: paramiko.Channel | None = None
        self._agent: paramiko.Channel | None = None
        self._reader: threading.Thread | None = None

    @property
    def work(self) -> PurePosixPath:
        """The run's folder on the machine; known after ``ship``."""
        assert self.base is not None, "the caller has shipped"
        return self.base / self._token

    def open(self) -> None:
        """Connect. A machine with a host key that is not in its ``known_hosts`` is refused."""
        open_connection(self.connection, self.machine)

    def close(self) -> None:
        """Disconnect. The agent and its peers end with the connection."""
        self.connection.close()
        self._finish_log()

    def run(self, command: str, timeout_s: float = COMMAND_S, given: bytes = b"") -> str:
        """Run a command of POSIX sh with ``given`` as its standard input, and return its standard output.

        Raises:
            CommandError: it failed.
            StepError: it did not end in time, or its output is too long.
        """
        channel = self.open_channel(command)
        try:
            _send(channel, given)
            output = read_answer(channel, timeout_s).decode(errors="replace")
            if (status := channel.recv_exit_status()) != 0:
                raise CommandError(f"exit status {status}: {words_on(channel, output.strip() or command)}")
        finally:
            channel.close()
        return output

    def run_python(self, source: str, *arguments: str) -> str:
        """Run Python source on the machine and return its output."""
        return self.run(self.python_command("-c", source, *arguments))

    def python_command(self, *words: str) -> str:
        """Return the command that gives words to the machine's Python, which then imports nothing from the user's home.

        A variable says so, because Python 3.10 would refuse ``-P`` before it could tell its version.
        """
        return shlex.join(["env", *map("=".join, SAFE_PATH.items()), self.machine.python, *words])

    def on_site(self, verb: str, *arguments: str | PurePosixPath) -> Any:  # noqa: ANN401 - JSON
        """Run a verb of ``harness.deployment.workspace`` on the machine and return its answer.

        Raises:
            StepError: it was refused; the message has the machine's reason.
        """
        channel = self._start_source(_WORKSPACE, verb, *map(str, arguments))
        try:
            channel.shutdown_write()
            answer = read_answer(channel, COMMAND_S)
            if channel.recv_exit_status() != 0:
                raise StepError(words_on(channel))
        finally:
            channel.close()
        return msgspec.json.decode(answer)

    def start_script(self, source: bytes, *words: str) -> Script:
        """Start Python source in the run's folder as a process of the run, which ends with this session.

        Args:
            source: reads its standard input after the source to its end, and ends then.
            words: its arguments.
        """
        mark = shlex.quote(f"{workspace.RUN_VARIABLE}={self.work}")
        return Script(
            self._start_source(source, *words, before=f"cd {shlex.quote(str(self.work))} && exec env {mark} ")
        )

    def start_module(self, module: str, *words: str, path: PurePosixPath) -> Script:
        """Start a module as a process of the run, which ends with this session; its output has standard error, too.

        Args:
            module: reads its standard input to its end, and ends then.
            words: its arguments.
            path: the folder that has the module's package.
        """
        variables = {workspace.RUN_VARIABLE: str(self.work), "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
        environment = shlex.join(["env", *map("=".join, variables.items())])
        command = f"exec {environment} {self.python_command('-P', '-m', module, *words)}"
        return Script(self.open_channel(command, combine=True))

    def _start_source(self, source: bytes, *words: str, before: str = "") -> paramiko.Channel:
        """Send the source on standard input: on the command line, every user could see it in the process list."""
        command = self.python_command("-c", _READ_AND_RUN, str(len(source)), *words)
        channel = self.open_channel(before + command)
        channel.sendall(source)
        return channel

    def ship(self, package: Package) -> bool:
        """Unpack the package on the machine, unless the same one is there; return whether it was sent."""
        self.base = PurePosixPath(self.on_site("prepare", self.machine.work))
        self._package = self.base / "packages" / package.sha256[:16]
        if self.on_site("package", self._package, package.sha256):
            return False
        part = f"{self._package}.{secrets.token_hex(4)}.part"  # another run may ship the same package meanwhile
        quoted = shlex.quote(part)
        self.run(f"umask 077 && mkdir {quoted}")
        self.put(f"{part}/package.tar.gz", package.archive)
        unpack = "tar --no-same-owner -xzf package.tar.gz && rm package.tar.gz"
        self.run(f"umask 077 && cd {quoted} && {unpack}")
        self.on_site("place", part, self._package, package.sha256)
        return True

    def make_folder(self, *, held: bool) -> None:
        """Make the run's folder on the machine, which must not exist.

        The work folder is prepared if ``ship`` has not done so. A ``held`` folder is removed when this session ends for
        any reason, unless ``keep_folder`` is called before.

        Raises:
            StepError: it could not be made.
        """
        if self.base is None:
            self.base = PurePosixPath(self.on_site("prepare", self.machine.work))
        if held:
            self._holder = self._start_source(_WORKSPACE, "hold", str(self.work))
            Script(self._holder).read_line()
        else:
            self.on_site("make", self.work)
        self._made = True

    def remove_folder(self) -> None:
        """Remove the run's folder if this session made it, and end the run's processes on the machine.

        Raises:
            StepError: it was not removed.
        """
        if not self._made:
            return
        self._made = False
        if self._holder is None:
            self.on_site("remove", self.work)
            return
        self._holder.shutdown_write()
        if not self._holder.status_event.wait(END_S) or self._holder.recv_exit_status() != 0:
            raise StepError(f"{self.work} is not removed yet; {words_on(self._holder)}")

    def keep_folder(self) -> None:
        """Keep the run's folder on the machine after this session."""
        self._made = False
        if self._holder is not None and self.is_connected:
            self._holder.sendall(b"keep\n")
            self._holder.shutdown_write()

    def put(self, path: str | PurePosixPath, content: bytes) -> None:
        """Write a file. An sshd need not offer SFTP."""
        self.run(f"cat > {shlex.quote(str(path))}", given=content)

    def start_agent(self, log: Path) -> None:
        """Start the agent of the run's folder; its output goes to ``log``.

        Its standard input stays open as long as this session. The agent ends at the end of its input, so a lost
        connection leaves no peer behind.
        """
        run = shlex.quote(f"{workspace.RUN_VARIABLE}={self.work}")
        words = f"-m peer.runtime.agent {shlex.quote(str(self.work))}"
        channel = self.open_channel(f"exec env {run} {self._python_here()} {words}", combine=True)
        self._agent = channel
        self._reader = threading.Thread(target=log_agent, args=(channel, log), daemon=True)
        self._reader.start()

    def call(self, verb: str, *arguments: str, timeout_s: float = COMMAND_S) -> Any:  # noqa: ANN401 - JSON
        """Send a command to the running agent and return its decoded JSON answer."""
        words = shlex.join([str(self.work), "--call", verb, *arguments])
        answer = self.run(f"{self._python_here()} -m peer.runtime.agent {words}", timeout_s)
        return msgspec.json.decode(answer)

    @property
    def agent_fault(self) -> str | None:
        """Return what is wrong with the started agent, as far as this side knows; None = nothing."""
        if not self.is_connected:
            return "the connection to it is lost"
        status = self.agent_status
        if not status:
            return None  # it runs, or all its peers ended as expected
        return "the agent was killed" if status < 0 else f"the agent ended with status {status}"

    @property
    def agent_status(self) -> int | None:
        """Return the agent's exit status; None while it runs."""
        if self._agent is None or not self._agent.exit_status_ready():
            return None
        return int(self._agent.recv_exit_status())

    def wait_agent(self, timeout_s: float) -> int:
        """Wait for the agent to end and return its exit status.

        Raises:
            StepError: it did not end, a signal ended it, or the connection was lost.
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

    def end_agent(self) -> None:
        """Close the agent's lifeline, which ends the agent and its peers, and wait until they have ended.

        Raises:
            StepError: they did not end.
        """
        if self._agent is None or self._agent.exit_status_ready():
            return
        self._agent.shutdown_write()
        if not self._agent.status_event.wait(END_S):
            raise StepError(f"the agent still runs {END_S:g} s after its lifeline was closed")

    @property
    def is_connected(self) -> bool:
        transport = self.connection.transport
        return transport is not None and transport.is_active()

    def fetch(self, expected: Mapping[str, str], destination: Path, budget_bytes: int) -> None:
        """Copy the existing files of the run's folder below ``destination``, as one tar stream.

        Args:
            expected: each file's path in the run's folder -> its path below ``destination``, where it must not exist.
            destination: a folder.
            budget_bytes: limit on what the machine may send.

        Raises:
            StepError: the machine could not read all files.
            ArchiveError: it sent other files, or too many bytes.
            TimeoutError: it sent nothing for ``COMMAND_S``.
        """
        channel = self.open_channel(f"cd {shlex.quote(str(self.work))} && {_PRESENT} | {_PACK}")
        channel.settimeout(COMMAND_S)
        try:
            channel.sendall("".join(f"{name}\n" for name in expected).encode())
            channel.shutdown_write()
            extract(channel.makefile("rb"), expected, destination, budget_bytes)
            if not channel.status_event.wait(COMMAND_S):
                raise StepError(f"tar did not end within {COMMAND_S:g} s")
            if (status := channel.recv_exit_status()) != 0:
                raise StepError(f"tar ended with status {status}: {words_on(channel)}")
        finally:
            channel.close()

    def _python_here(self) -> str:
        # -P: no import from the user's home.
        path = shlex.quote(f"PYTHONPATH={self._package}")
        return f"env {path} PYTHONDONTWRITEBYTECODE=1 {shlex.quote(self.machine.python)} -P"

    def open_channel(self, command: str, *, combine: bool = False) -> paramiko.Channel:
        """Start a command of POSIX sh and return its channel; ``combine`` merges standard error into the output.

        Raises:
            StepError: the user's login shell did not start it.
        """
        channel: paramiko.Channel = self.connection.create_session()
        channel.set_combine_stderr(combine)
        channel.exec_command(wrap_command(command, self._marker))
        try:
            skip_greeting(channel, self._marker, COMMAND_S)
        except BaseException:
            channel.close()
            raise
        return channel

    def _finish_log(self) -> None:
        if self._reader is not None:
            self._reader.join(timeout=5)


def _send(channel: paramiko.Channel, content: bytes) -> None:
    """Send a command its whole input."""
    channel.settimeout(COMMAND_S)
    try:
        channel.sendall(content)
    except TimeoutError:
        raise
    except OSError:
        return  # it has ended without reading everything; its status says why
    channel.shutdown_write()
