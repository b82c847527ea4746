"""What tests ask of processes that are not their children."""

import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

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


def await_end(pids: Iterable[int]) -> None:
    """Wait until none of them is alive."""
    deadline = time.monotonic() + END_S
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)
