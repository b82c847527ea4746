"""What tests ask of processes that are not their children."""

import subprocess
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

END_S = 300.0


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    """Kill the process at the end."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def is_alive(pid: int) -> bool:
    """Whether a process exists and has not ended; one that nobody waits for stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Process(NamedTuple):
    """A process as proc_pid_stat(5) shows it."""

    name: str
    state: str  # one letter
    ticks: int  # processor time


def children_of(parent: int) -> set[int]:
    """Return the numbers of a process's children."""
    found: set[int] = set()
    for task in Path(f"/proc/{parent}/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found


def find_below(parent: int, word: str) -> int:
    """Return the descendant of a process whose command line has a word: the last one, if others only start it."""
    for child in sorted(children_of(parent)):
        with suppress(OSError, LookupError):
            return find_below(child, word)
        with suppress(OSError):
            if word in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                return child
    raise LookupError(f"no process below {parent} has {word!r} in its command line")


def processes_below(parent: int, without: Collection[int] = ()) -> list[Process]:
    """Return every descendant of a process, without some children of it and what is below them."""
    found: list[Process] = []
    for child in sorted(children_of(parent)):
        with suppress(OSError):
            if child not in without:
                name, _, rest = Path(f"/proc/{child}/stat").read_text().partition("(")[2].rpartition(")")
                state, *numbers = rest.split()
                found += [Process(name, state, int(numbers[10]) + int(numbers[11])), *processes_below(child)]
    return found


def await_end(pids: Iterable[int]) -> None:
    """Wait until none of them is alive."""
    deadline = time.monotonic() + END_S
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
