"""Namespaces that act as machines, for the tests of the deployment: each has its own network, processes and sshd."""

import contextlib
import ctypes
import functools
import inspect
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from fabric.main import program  # type: ignore[import-untyped]

from harness.experiment.inventory import Machine
from harness.machine import sandbox
from harness.testbeds.emulated.sshd import start_sshd
from peer.runtime.namespaces import CLONE_NEWNET, check, die_with_parent

WORK = Path("/tmp/work")  # in the sandbox's private /tmp
OF_TEST = Path("/tmp/test")
"""The test's ``tmp_path`` there."""

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID = 0x20000, 0x8000000, 0x20000000
MS_NOEXEC = 8


def sandboxed(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test as the first process of a sandbox: no route out, and nothing can be left behind.

    The process is a fork of this one, which has imported everything: a Python and a pytest of its own would take some
    seconds of processor time for each test.
    """
    parameters = inspect.signature(test).parameters.values()
    fixtures = [each for each in parameters if each.name != "tmp_path"]

    @functools.wraps(test)
    def run_inside(**given: Any) -> None:
        assert run_in_fork(lambda: test(tmp_path=OF_TEST, **given)) == 0, "its traceback is in the output"

    del run_inside.__wrapped__  # pytest would look for the inner test's fixtures
    run_inside.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
    return run_inside


def run_in_fork(action: Callable[[], None]) -> int:
    """Call a function in a fork of this process inside a new sandbox; return its exit status: 1 for any exception."""
    own = os.getpid()
    return call_in_fork(lambda: _enter_namespaces(own, action))


def call_in_fork(action: Callable[[], int | None]) -> int:
    """Call a function in a fork of this process; return what it returns, its exit status: 1 for any exception."""
    _flush()
    child = os.fork()
    if child == 0:
        _call_and_exit(action)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def _call_and_exit(action: Callable[[], int | None]) -> NoReturn:
    status = 1
    try:
        status = action() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(status)


def _flush() -> None:
    """Write out what a fork would write once more, and what ``os._exit`` would not write."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()


def _enter_namespaces(parent: int, action: Callable[[], None]) -> int:
    """Make namespaces as ``sandbox.enter`` does for root. The first process of the new PID namespace is a child."""
    die_with_parent(parent)
    os.setsid()
    namespaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC
    check(ctypes.CDLL(None, use_errno=True).unshare(namespaces), "unshare")
    first = os.fork()
    if first == 0:
        _call_and_exit(lambda: _call_inside(action))
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def _call_inside(action: Callable[[], None]) -> None:
    die_with_parent(0)  # which is outside of the namespace
    sandbox.mount(None, "/", None, sandbox.MS_REC | sandbox.MS_PRIVATE)
    sandbox.mount("proc", "/proc", "proc", sandbox.MS_NOSUID | sandbox.MS_NODEV | MS_NOEXEC)
    sandbox.furnish([Path(__file__).parents[2], Path(sys.prefix), Path(sys.base_prefix), Path.cwd()])
    tempfile.tempdir = None  # it may be known already, of another variable
    OF_TEST.mkdir(0o700)
    action()


def fab(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``fab`` in a fork of this process, which has imported it, since its start takes most of the time."""

    def run() -> int:
        for stream, descriptor in ((out, 1), (err, 2)):
            os.dup2(stream.fileno(), descriptor)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        try:
            program.run(["fab", "-r", "playbooks", *words])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        status = call_in_fork(run)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(["fab", *words], status, out.read(), err.read())


def prometheus_runs() -> bool:
    """Whether a server runs in this sandbox. A dead process that nobody waited for has no command line."""
    lines = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))
    return any(b"/prometheus\0" in line for line in lines)


class Box:
    """A machine's namespaces, held by a process that is the first one in them."""

    def __init__(self, number: int) -> None:
        self.address = f"10.77.{number}.2"
        unshare = ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen([*unshare, "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()
        self.first = int(children.split()[0])
        self._wire(number)

    @property
    def enter(self) -> list[str]:
        return ["nsenter", "-t", str(self.first), "--net", "--mount", "--pid", "--ipc"]

    def processes(self) -> list[str]:
        """The command lines of everything that runs on the machine beside its first process, sshd and this look."""
        script = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done"
        listed = subprocess.run([*self.enter, "sh", "-c", script], capture_output=True, text=True, check=True).stdout
        other = ("sleep infinity", "sshd", "sh -c", "/usr/sbin/sshd", "tr ")
        return [line for line in listed.splitlines() if line.strip() and not line.startswith(other)]

    def kill_first(self, word: str) -> None:
        """Kill the first process of the machine whose command line has the word."""
        script = "cd /proc && for p in $(ls | grep '^[0-9]' | sort -n); do tr '\\0' ' ' < $p/cmdline 2> /dev/null"
        script += f" | grep -q '[{word[0]}]{word[1:]}' && kill -KILL $p && exit; done"
        subprocess.run([*self.enter, "sh", "-c", script], check=True)

    def files(self, folder: str) -> list[str]:
        """What sshd's sessions on the machine see in a folder."""
        [server] = self.servers()
        return sorted(path.name for path in Path(f"/proc/{server}/root/{folder}").iterdir())

    def servers(self) -> list[str]:
        """The process of the machine's sshd, whose mount namespace its sessions have."""
        return [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if self._is_server(path)]

    def _is_server(self, cmdline: Path) -> bool:
        try:
            same = (cmdline.parent / "ns/net").readlink() == Path(f"/proc/{self.first}/ns/net").readlink()
            return same and cmdline.read_bytes().startswith(b"sshd: ") and b"[listener]" in cmdline.read_bytes()
        except OSError:
            return False  # ended while we looked

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()

    def _wire(self, number: int) -> None:
        """A veth pair to the harness's namespace, which routes between the machines."""
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for command in (
            f"ip link add box{number} type veth peer name eth0 netns {self.first}",
            f"ip address add 10.77.{number}.1/24 dev box{number}",
            f"ip link set box{number} up",
        ):
            subprocess.run(command.split(), check=True)
        for command in (
            "ip link set lo up",
            f"ip address add {self.address}/24 dev eth0",
            "ip link set eth0 up",
            f"ip route add 10.77.0.0/16 via 10.77.{number}.1",
        ):
            subprocess.run([*self.enter, *command.split()], check=True)


@contextlib.contextmanager
def machines(folder: Path, count: int) -> Iterator[list[tuple[Box, Machine]]]:
    """``count`` machines, each with an sshd on port 22 and, under one and the same path, a work folder of its own."""
    boxes: list[Box] = []
    servers = []
    try:
        for number in range(count):
            boxes.append(box := Box(number))
            home = folder / f"machine{number}"
            servers.append(
                start_sshd(home, box.address, 22, name=f"m{number}", work=WORK, own_work=True, enter=box.enter)
            )
        yield [(box, server.machine) for box, server in zip(boxes, servers, strict=True)]
    finally:
        for server in servers:
            server.stop()
        for box in boxes:
            box.close()
