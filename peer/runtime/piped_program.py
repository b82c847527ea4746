"""One process of a program that reads and writes lines, of whatever contract: its start, its pipes and its end."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from peer.runtime.namespaces import die_with_parent

READ_BYTES: Final = 1 << 20
"""At least the capacity of a pipe, so that one read empties it."""

MAX_UNREAD_BYTES: Final = 1 << 20
"""Most bytes of orders that a program may leave unread beyond the capacity of its pipe."""

_HOLD: Final = ("/bin/sh", "-c", 'read -r _ && exec "$@"', "sh")
"""A process that becomes the program of the words that follow as soon as it reads a line. POSIX has ``read`` take no
byte after the line, so the program gets the rest of the pipe."""

_TCP_LISTEN: Final = "0A"
_UDP_OPEN: Final = "07"


class ProgramError(Exception):
    """The program of a peer failed or broke the rules. The text tells the user what it did."""


class Program:
    """A running process, which has its own process group and ends with this process. It needs a running loop.

    It has the same standard error as this process. Its temporary files (``TMPDIR``) vanish with it.

    Args:
        words: the program and its arguments.
        environment: its environment variables besides those of this process.
        temporary: the folder to make for its temporary files.
        heard: called with its output on standard output.
        failed: called with the reason why the program cannot go on.
        held: whether the process waits for ``release`` before it becomes the program. Programs that are held start at
            nearly the same instant, since most of the work of a start has been done by then.

    Attributes:
        ended: done when the process has ended and ``heard`` got all its output. Its value is the exit status, or the
            negative number of the signal that ended it.

    Raises:
        ProgramError: the program cannot be started.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        temporary: Path,
        heard: Callable[[bytes], None],
        failed: Callable[[ProgramError], None],
        held: bool = False,
    ) -> None:
        if held and shutil.which(words[0]) is None:
            raise ProgramError(f"cannot be started: there is no program {words[0]!r} that can be run")
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = self._loop.create_future()
        self._heard = heard
        self._failed = failed
        self._unwritten = bytearray()
        self._temporary = temporary
        try:
            temporary.mkdir(parents=True)
            self._process = subprocess.Popen(
                [*_HOLD, *words] if held else words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **environment, "TMPDIR": str(temporary)},
                process_group=0,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise ProgramError(f"cannot be started: {error}") from None
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        for pipe in (self._input, self._output):
            os.set_blocking(pipe, False)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._output, self._read)
        self._loop.add_reader(self._pidfd, self._reap)

    def write(self, lines: bytes) -> None:
        """Write lines to the program. Bytes that do not fit into its pipe wait."""
        if not self.ended.done():
            self._unwritten += lines
            self._flush()

    def release(self) -> None:
        """Let a held process become the program."""
        self.write(b"\n")

    def kill(self) -> None:
        """Kill the program and the other processes in its process group."""
        if not self.ended.done():
            kill_group(self._process.pid, self._pidfd)

    def _flush(self) -> None:
        try:
            while self._unwritten:
                del self._unwritten[: os.write(self._input, self._unwritten)]
        except BlockingIOError:
            self._loop.add_writer(self._input, self._flush)
            if len(self._unwritten) > MAX_UNREAD_BYTES:
                self._failed(ProgramError("does not read its standard input"))
            return
        except BrokenPipeError:  # it has ended, or closed its input on purpose; its exit status shows which
            self._unwritten.clear()
        self._loop.remove_writer(self._input)

    def _read(self) -> None:
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._heard(data)
        else:
            self._loop.remove_reader(self._output)

    def _reap(self) -> None:
        self.kill()  # the processes that it has left behind in its group
        self._read()
        for watched in (self._output, self._pidfd):
            self._loop.remove_reader(watched)
        self._loop.remove_writer(self._input)
        status = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "it is a pipe"
            pipe.close()
        os.close(self._pidfd)
        shutil.rmtree(self._temporary, ignore_errors=True)
        self.ended.set_result(status)


def kill_group(pid: int, pidfd: int) -> None:
    """Kill a process, which may have left its process group, and what is in this group.

    Args:
        pid: the process and its group; it is not reaped yet, so the number stands for no other group.
        pidfd: a descriptor of the process.
    """
    for kill in (partial(signal.pidfd_send_signal, pidfd), partial(os.killpg, pid)):
        with contextlib.suppress(ProcessLookupError):
            kill(signal.SIGKILL)


def describe_status(status: int) -> str:
    """Describe how a process ended. ``status``: as in ``Program.ended``."""
    return f"exited with status {status}" if status >= 0 else f"was killed by {signal.Signals(-status).name}"


def is_listening(port: int) -> bool:
    """Return whether a socket of this network namespace listens on a port, for TCP or UDP."""
    states = {"tcp": _TCP_LISTEN, "tcp6": _TCP_LISTEN, "udp": _UDP_OPEN, "udp6": _UDP_OPEN}
    return any(_has_socket(Path(f"/proc/self/net/{name}"), port, state) for name, state in states.items())


def _has_socket(table: Path, port: int, state: str) -> bool:
    """Return whether a line of the kernel's table has a socket with this local port and state."""
    with contextlib.suppress(FileNotFoundError):  # the kernel has no IPv6
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            local, found = line.split()[1], line.split()[3]
            if found == state and local.endswith(f":{port:04X}"):
                return True
    return False
