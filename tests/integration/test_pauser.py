"""Processes in a host's namespace are stopped, and go on when the pause ends, or when the one who asked is gone."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from harness.testbeds.emulated.pauser import Orders, Pauser
from tests.processes import ended
from topologies.timeline import Change

pytestmark = pytest.mark.root

HOUR_NS = 3_600_000_000_000
DEADLINE_S = 300.0
ROOT = Path(__file__).parents[2]


def await_true(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def namespace(process: int) -> Path:
    return Path(f"/proc/{process}/ns/net").readlink()


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T"


@contextmanager
def shell_of_its_own() -> Iterator[int]:
    """A process with a network namespace of its own, as Mininet's shells are."""
    with ended(subprocess.Popen(["unshare", "--net", "sleep", "1000"])) as process:
        await_true(lambda: namespace(process.pid) != namespace(os.getpid()))
        yield process.pid


@contextmanager
def peer_of(shell: int) -> Iterator[int]:
    """Another process in that namespace."""
    with ended(subprocess.Popen(["nsenter", f"--net=/proc/{shell}/ns/net", "sleep", "1000"])) as process:
        await_true(lambda: namespace(process.pid) == namespace(shell))
        yield process.pid


@pytest.fixture
def shell() -> Iterator[int]:
    with shell_of_its_own() as found:
        yield found


@pytest.fixture
def peer(shell: int) -> Iterator[int]:
    with peer_of(shell) as found:
        yield found


def test_a_peer_is_paused_until_the_end_of_the_run(shell: int, peer: int, tmp_path: Path) -> None:
    pauser = Pauser([Change(0, 0, HOUR_NS, paused=(0,))], [shell], tmp_path, 1.0)
    pauser.schedule(time.monotonic_ns())
    await_true(lambda: is_stopped(peer))
    assert not is_stopped(shell)
    assert pauser.lost() == {}
    applied_ns, complaints = pauser.end()
    assert (len(applied_ns), complaints) == (1, [])
    assert not is_stopped(peer)


def test_a_peer_goes_on_when_its_pause_ends(shell: int, peer: int, tmp_path: Path) -> None:
    """Instants that have passed are applied at once, in their order."""
    with shell_of_its_own() as other, peer_of(other) as later:
        changes = [Change(0, 0, 1, paused=(0,)), Change(2, 1, HOUR_NS, paused=(1,))]
        pauser = Pauser(changes, [shell, other], tmp_path, 1.0)
        pauser.schedule(time.monotonic_ns())
        await_true(lambda: is_stopped(later))
        assert not is_stopped(peer)
        applied_ns, _ = pauser.end()
        assert len(applied_ns) == 3
        assert applied_ns == sorted(applied_ns)


def test_without_a_run_nothing_is_paused(tmp_path: Path) -> None:
    assert Pauser([Change(0, 0, 1, paused=(0,))], [os.getpid()], tmp_path, 1.0).end() == ([], [])


def test_peers_go_on_when_the_testbed_dies(shell: int, peer: int) -> None:
    file = os.memfd_create("applied")
    command = [sys.executable, "-m", "harness.testbeds.emulated.pauser", str(file)]
    with ended(subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[file], cwd=ROOT)) as process:
        assert process.stdin is not None
        orders = Orders(time.monotonic_ns(), 1.0, (shell,), (Change(0, 0, HOUR_NS, paused=(0,)),))
        process.stdin.write(msgspec.json.encode(orders) + b"\n")
        process.stdin.flush()
        await_true(lambda: is_stopped(peer))
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
    os.close(file)
    assert not is_stopped(peer)
