"""Namespaces that act as machines, for the tests of the deployment: each has its own network, processes and sshd."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.experiment.inventory import Machine
from harness.machine import sandbox
from harness.testbeds.emulated.sshd import start_sshd

WORK = Path("/tmp/work")  # in the sandbox's private /tmp
INSIDE = "TRELLIS_TEST_INSIDE"


def sandboxed(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test by a pytest of its own inside a sandbox: no route out, and nothing can be left behind."""
    if os.environ.get(INSIDE):
        return test

    @functools.wraps(test)
    def run_inside() -> None:
        code = test.__code__
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{code.co_filename}::{test.__name__}"]
        assert sandbox.run(argv, environment={INSIDE: "1"}) == 0

    del run_inside.__wrapped__  # pytest would look for the inner test's fixtures
    return run_inside


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
