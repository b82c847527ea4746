"""What a program and all processes that it starts use: processor time, and memory that is theirs alone."""

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PERIOD_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Used:
    """What was used; sampled, so that the last tenth of a second of a process is missing.

    Memory is anonymous: pages of mapped files, which the kernel may drop, do not count.
    """

    seconds: float = 0.0
    cpu_s: dict[int, float] = field(default_factory=dict)  # by process
    peak_mb: dict[int, float] = field(default_factory=dict)  # of each process
    commands: dict[int, str] = field(default_factory=dict)
    peak_together_mb: float = 0.0  # of all processes at the same time

    @property
    def total_cpu_s(self) -> float:
        """The processor time of all processes."""
        return sum(self.cpu_s.values())

    def largest_mb(self, word: str) -> float:
        """The most memory that a process had whose command contains a word."""
        return max((self.peak_mb[pid] for pid, command in self.commands.items() if word in command), default=0.0)


def measure(argv: Sequence[str], environment: Mapping[str, str], roots: Sequence[int] = ()) -> Used:
    """Run a program to its end.

    Args:
        argv: the program.
        environment: its variables.
        roots: other processes that count with all their children, such as a cluster's.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    used = Used()
    before = _sample(used, roots)
    begun = dict(used.cpu_s) if before else {}
    start = time.perf_counter()
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_PERIOD_S):
            _sample(used, (process.pid, *roots))

    thread = threading.Thread(target=watch)
    thread.start()
    code = process.wait()
    ended.set()
    thread.join()
    used.seconds = time.perf_counter() - start
    for pid, cpu_s in begun.items():
        used.cpu_s[pid] -= cpu_s
    if code:
        raise subprocess.CalledProcessError(code, argv)
    return used


def _sample(used: Used, roots: Sequence[int]) -> bool:
    """Note what the processes below some use now."""
    together_mb = 0.0
    for pid in _descendants(roots):
        try:
            folder = Path(f"/proc/{pid}")
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            status = (folder / "status").read_text(encoding="utf-8")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        used.cpu_s[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        anonymous = next((line for line in status.splitlines() if line.startswith("RssAnon")), "RssAnon: 0")
        own_mb = int(anonymous.split()[1]) / 1e3
        used.peak_mb[pid] = max(own_mb, used.peak_mb.get(pid, 0.0))
        if command:  # a process that has ended and is not waited for has none, nor memory
            used.commands[pid] = command
        together_mb += own_mb
    used.peak_together_mb = max(used.peak_together_mb, together_mb)
    return bool(roots)


def _descendants(roots: Sequence[int]) -> list[int]:
    """Some processes and all below them."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found, waiting = [], list(roots)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found
