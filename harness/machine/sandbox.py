"""The sandbox: namespaces in which a run is isolated, and with which all its processes end.

A command enters new mount, PID and network namespaces (and a user namespace if not root) that have loopback, no other
interface, no route out, and private directories for temporary files. No clean-up is necessary, because nothing can
remain:

* the kernel kills ``unshare`` when the process that entered dies for any reason (``setpriv --pdeathsig``);
* with ``unshare`` it kills the first process in the PID namespace (``--kill-child``), and with that one all others;
* interfaces and mounts vanish with the last process of their namespace. No cgroup is made.

Without root the user keeps their own uid inside and has the namespaces' capabilities as ambient ones. With a single
mapped uid, an sshd as root could not drop its groups; as a plain user it can serve that user, and its child processes
still have the capabilities.
"""

import argparse
import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from harness.errors import TestbedError
from harness.interpreter import python_command
from peer.plugins import named_files

PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/run", "/dev/shm")
"""Folders that are empty, private and in memory in a sandbox. ``/var/run`` is a link to ``/run``."""

MS_REC, MS_BIND, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x4000, 0x1000, 1 << 18, 2, 4

END_S = 60.0
"""Time that hundreds of killed processes and their namespaces may take to end."""

_NEEDED = ("setpriv", "unshare", "ip")


def enter(
    argv: Sequence[str],
    *,
    keep: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    descriptors: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command inside a new sandbox.

    Call it from the main thread: the kernel kills the sandbox when the calling *thread* ends. The command's standard
    input is a pipe that the caller holds, so that the command also notices a caller that was killed before the kernel
    was told. The command has its own session, so that a terminal's Ctrl-C reaches only the caller.

    Args:
        argv: the command. It becomes the first process of its PID namespace.
        keep: files and folders that stay visible in private folders; those of this Python and of the working directory
            always do.
        environment: variables in addition to this process's environment.
        output: file for its standard output and error; None = those of this process.
        descriptors: those that it inherits. A socket keeps the network in which it was made.

    Raises:
        TestbedError: a program is missing, or this kernel refuses the namespaces.
    """
    _check_possible()
    # What this Python needs:
    own = (Path(__file__).parents[2], Path(sys.prefix), Path(sys.base_prefix), Path.cwd(), *map(Path, named_files()))
    kept = [f"--keep={path}" for path in sorted({str(path.absolute()) for path in (*own, *keep)})]
    inside = python_command("-m", __name__, *kept, "--", *argv)
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", *_namespaces(), *inside],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
        pass_fds=descriptors,
    )


def run(
    argv: Sequence[str],
    *,
    keep: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    descriptors: Sequence[int] = (),
) -> int:
    """Run a command inside a new sandbox and wait for it. An interrupt ends the sandbox at once.

    See ``enter`` for the arguments.

    Returns:
        The command's exit status.

    Raises:
        TestbedError: the sandbox could not be made, or a signal ended it.
    """
    process = enter(argv, keep=keep, environment=environment, output=output, descriptors=descriptors)
    try:
        status = process.wait()
    except BaseException:
        end(process)
        raise
    if status < 0:
        raise TestbedError(f"run {argv[0]} in a sandbox", f"signal {-status} ended it")
    return status


def end(sandbox: subprocess.Popen[bytes]) -> None:
    """Kill all processes of a sandbox, and return when they have ended.

    Killing ``unshare`` kills the first process of its PID namespace, which ends only after all others.
    """
    inside = [os.pidfd_open(process) for process in first_processes(sandbox)]
    sandbox.kill()
    sandbox.wait()
    for descriptor in inside:
        select.select([descriptor], [], [], END_S)
        os.close(descriptor)


def first_processes(sandbox: subprocess.Popen[bytes]) -> list[int]:
    """Return the first process of a sandbox's namespaces, by our numbers; nothing if it has ended."""
    children = Path(f"/proc/{sandbox.pid}/task/{sandbox.pid}/children")
    try:
        return [int(word) for word in children.read_text(encoding="utf-8").split()]
    except OSError:
        return []


def _check_possible() -> None:
    for program in _NEEDED:
        if shutil.which(program) is None:
            raise TestbedError("enter a sandbox", f"the program {program} is not installed (trellis doctor --fix)")
    trial = subprocess.run(["unshare", *_namespaces(), "true"], capture_output=True, text=True, check=False)
    if trial.returncode:
        problem = f"{trial.stderr.strip()} (trellis doctor says what is missing)"
        raise TestbedError(f"make namespaces for a sandbox as uid {os.geteuid()}", problem)


def _namespaces() -> list[str]:
    """Return the options of ``unshare``. ``--mount-proc`` gives the PID namespace its own /proc."""
    user = ["--user", "--map-current-user", "--keep-caps"] if os.geteuid() != 0 else []
    return [*user, "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]


# ---------------------------------------------------------------------------------------- inside the sandbox


def main(arguments: list[str] | None = None) -> None:
    """Set up the namespaces that ``unshare`` made, then execute the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="append", default=[], type=Path)
    parser.add_argument("argv", nargs="+")
    given = parser.parse_args(arguments)
    if _orphaned():
        sys.exit(1)
    try:
        furnish(given.keep)
    except TestbedError as error:
        print(f"trellis: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    os.execvp(given.argv[0], given.argv)


def furnish(keep: Sequence[Path]) -> None:
    """Hide the temporary folders behind private ones, make kept paths visible again, and bring loopback up.

    Raises:
        TestbedError: the kernel refused a mount, or loopback.
    """
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    hidden = [folder for folder in map(Path, PRIVATE_FOLDERS) if folder.is_dir() and not folder.is_symlink()]
    held = {path: os.open(path, os.O_PATH) for path in _below(keep, hidden)}
    for folder in hidden:
        mount("tmpfs", str(folder), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for path, descriptor in held.items():
        _show_again(path, descriptor)
        os.close(descriptor)
    os.chdir(Path.cwd())
    os.environ["TMPDIR"] = "/tmp"
    up = subprocess.run(["ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False)
    if up.returncode:
        raise TestbedError("bring loopback up in the sandbox", up.stderr.strip())


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount by a system call: the program ``mount`` refuses users other than root even if the kernel allows them.

    Raises:
        TestbedError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    if libc.mount(*encoded, ctypes.c_ulong(flags), data.encode()) != 0:
        problem = os.strerror(ctypes.get_errno())
        raise TestbedError(f"mount {kind or source or 'private'} on {target} in the sandbox", problem)


def stop_others() -> None:
    """Stop all other processes of the sandbox whose first process this is, and return when every thread has stopped.

    Raises:
        TestbedError: this process is not the first one of its PID namespace.
    """
    _signal_others(signal.SIGSTOP)
    while not set(_other_states()) <= _STANDING:
        time.sleep(_STOP_POLL_S)


def continue_others() -> None:
    """Let the processes go on that ``stop_others`` has stopped."""
    _signal_others(signal.SIGCONT)


_STANDING = {"T", "t", "Z", "X"}
"""States of threads that are stopped, or have ended. Source: proc_pid_stat(5)."""

_STOP_POLL_S = 0.005


def _signal_others(number: signal.Signals) -> None:
    if os.getpid() != 1:
        raise TestbedError("send a signal to the processes of a sandbox", "the sender is not its first process")
    with contextlib.suppress(ProcessLookupError):  # there are no others
        os.kill(-1, number)


def _other_states() -> Iterator[str]:
    """Yield the state of each thread of the other processes of the PID namespace."""
    for stat in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
        if stat.parts[2] != "1":
            with contextlib.suppress(OSError):  # it has ended meanwhile
                yield stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]


def _below(keep: Sequence[Path], hidden: Sequence[Path]) -> list[Path]:
    """Return the kept paths that would be hidden, parents first, without paths inside another kept path."""
    chosen: list[Path] = []
    for path in sorted({path for path in keep if path.exists()}):
        if any(path.is_relative_to(folder) for folder in hidden) and not any(map(path.is_relative_to, chosen)):
            chosen.append(path)
    return chosen


def _show_again(path: Path, descriptor: int) -> None:
    """Bind the descriptor's file to its old path, which a private folder hides now."""
    if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112 - a magic link
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    mount(f"/proc/self/fd/{descriptor}", str(path), None, MS_BIND | MS_REC)


def _orphaned() -> bool:
    """Return whether the caller died before the kernel was told to kill the sandbox with it: the pipe is closed."""
    poll = select.poll()
    poll.register(0, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


if __name__ == "__main__":
    main()
