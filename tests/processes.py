"""What tests ask of processes that are not their children."""

import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

END_S = 20.0


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


def processes_below(parent: int) -> list[Process]:
    """Return every descendant of a process."""
    found: list[Process] = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        try:
            for child in map(int, (task / "children").read_text().split()):
                name, _, rest = Path(f"/proc/{child}/stat").read_text().partition("(")[2].rpartition(")")
                state, *numbers = rest.split()
                found += [Process(name, state, int(numbers[10]) + int(numbers[11])), *processes_below(child)]
        except OSError:  # it has ended meanwhile
            continue
    return found


def await_end(pids: Iterable[int]) -> None:
    """Wait until none of them is alive."""
    deadline = time.monotonic() + END_S
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
