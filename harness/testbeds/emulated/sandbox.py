"""The sandbox: namespaces of its own in which a run lives, and with which everything of it dies.

A command enters fresh mount, PID and network namespaces (and a user namespace when not root) that have loopback, no
other interface, no route out, and private directories for temporary files. Nothing is ever cleaned up, because
nothing can be left:

* the kernel kills ``unshare`` when the process that entered dies, however it dies (``setpriv --pdeathsig``);
* with ``unshare`` it kills the first process in the PID namespace (``--kill-child``), and with that one all others;
* interfaces and mounts vanish with the last process of their namespace. No cgroup is made.

Without root the user keeps their own uid inside and holds the namespaces' capabilities as ambient ones: with a single
mapped uid, an sshd that believes itself root could not drop its groups, whereas one that runs as a plain user can
serve that user, and what it starts still has the capabilities.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from harness.errors import TestbedError

PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/run", "/dev/shm")
"""Folders that are empty, private and in memory inside. ``/var/run`` is a link to ``/run``."""

MS_REC, MS_BIND, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x4000, 0x1000, 1 << 18, 2, 4

END_S = 60.0
"""How long hundreds of killed processes and their namespaces may take to vanish."""

_NEEDED = ("setpriv", "unshare", "ip")


def enter(
    argv: Sequence[str],
    *,
    keep: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command inside a new sandbox.

    Call it from the main thread: the kernel ties the sandbox's life to the calling *thread*. The command's standard
    input is a pipe that the caller holds, so that a caller killed before the tie was made is noticed as well. It is in
    a session of its own: a terminal's Ctrl-C is the caller's.

    Args:
        argv: the command. It becomes the child of nobody: the first process of its PID namespace.
        keep: files and folders that stay visible where a private folder hides them; those of this Python and of the
            working directory always do.
        environment: variables on top of this process's own.
        output: where its standard output and error go; None = where this process's go.

    Raises:
        TestbedError: a program is missing, or this kernel refuses the namespaces.
    """
    _check_possible()
    kept = [f"--keep={path}" for path in sorted({str(path.absolute()) for path in (*_own_folders(), *keep)})]
    inside = [sys.executable, "-m", __name__, *kept, "--", *argv]
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", *_namespaces(), *inside],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


def run(
    argv: Sequence[str],
    *,
    keep: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> int:
    """Run a command inside a new sandbox and wait for it. An interrupt ends the sandbox at once.

    The arguments are those of ``enter``.

    Returns:
        The command's exit status.

    Raises:
        TestbedError: the sandbox could not be made, or a signal ended it.
    """
    process = enter(argv, keep=keep, environment=environment, output=output)
    try:
        status = process.wait()
    except BaseException:
        end(process)
        raise
    if status < 0:
        raise TestbedError(f"run {argv[0]} in a sandbox", f"signal {-status} ended it")
    return status


def end(sandbox: subprocess.Popen[bytes]) -> None:
    """Kill a sandbox with everything in it, and return when no process of it is left.

    With ``unshare`` dies the first process of its PID namespace, which has ended only when all others have.
    """
    inside = [os.pidfd_open(process) for process in _children(sandbox.pid)]
    sandbox.kill()
    sandbox.wait()
    for descriptor in inside:
        select.select([descriptor], [], [], END_S)
        os.close(descriptor)


def _children(process: int) -> list[int]:
    """Its children, none when it has ended: a child that nobody has waited for stays until then."""
    try:
        return [
            int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
        ]
    except OSError:
        return []


def rootless() -> bool:
    """Whether a sandbox needs a user namespace of its own, this process not being root."""
    return os.geteuid() != 0


def _check_possible() -> None:
    for program in _NEEDED:
        if shutil.which(program) is None:
            raise TestbedError("enter a sandbox", f"the program {program} is not installed (trellis doctor --fix)")
    trial = subprocess.run(["unshare", *_namespaces(), "true"], capture_output=True, text=True, check=False)
    if trial.returncode:
        raise TestbedError(f"make namespaces for a sandbox as uid {os.geteuid()}", trial.stderr.strip())


def _namespaces() -> list[str]:
    """What ``unshare`` is to make. ``--mount-proc`` gives the PID namespace its own /proc."""
    user = ["--user", "--map-current-user", "--keep-caps"] if rootless() else []
    return [*user, "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]


def _own_folders() -> list[Path]:
    """What this Python needs to see inside: the source tree, its environment and the working directory."""
    return [Path(__file__).parents[3], Path(sys.prefix), Path(sys.base_prefix), Path.cwd()]


# ---------------------------------------------------------------------------------------- inside the sandbox


def main(arguments: list[str] | None = None) -> None:
    """Furnish the namespaces that ``unshare`` made, then become the command."""
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
    """Hide the temporary folders behind private ones, show what is kept again, and bring loopback up.

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
    """Ask the kernel itself: the program of that name refuses whoever is not root even where the kernel does not.

    Raises:
        TestbedError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    if libc.mount(*encoded, ctypes.c_ulong(flags), data.encode()) != 0:
        problem = os.strerror(ctypes.get_errno())
        raise TestbedError(f"mount {kind or source or 'private'} on {target} in the sandbox", problem)


def _below(keep: Sequence[Path], hidden: Sequence[Path]) -> list[Path]:
    """The kept paths that would be hidden, without those inside another kept one; parents first."""
    chosen: list[Path] = []
    for path in sorted({path for path in keep if path.exists()}):
        if any(path.is_relative_to(folder) for folder in hidden) and not any(map(path.is_relative_to, chosen)):
            chosen.append(path)
    return chosen


def _show_again(path: Path, descriptor: int) -> None:
    """Bind what the descriptor holds to its old path, which a private folder now hides."""
    if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112 - a magic link, not a path of ours
        path.mkdir(parents=True, exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    mount(f"/proc/self/fd/{descriptor}", str(path), None, MS_BIND | MS_REC)


def _orphaned() -> bool:
    """Whether the caller died before the kernel tied the sandbox's life to it: its end of the pipe is closed."""
    poll = select.poll()
    poll.register(0, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


if __name__ == "__main__":
    main()
