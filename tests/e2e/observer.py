"""Runs inside a sandbox that stands for a whole machine: ends a run by a signal, and says what it left on that machine.

    python -m tests.e2e.observer SIGNAL MOMENT COMMAND...

SIGNAL is KILL or TERM, which the command alone gets, or INT, which its process group gets, as by a terminal's Ctrl-C.
MOMENT is the step after whose end the signal is sent, a file with whose appearance it is, or a number of seconds. Being
the first process of its PID namespace, the observer inherits whatever outlives the run, and waits for it in vain if it
does not die.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

SURVIVAL_S = 10
FOLDERS = ("/tmp", "/var/tmp", "/run", "/dev/shm")


def main() -> None:
    """Print what happened, and the differences that an ended run makes (``left``), as JSON; {} = it left nothing."""
    number, moment, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    out = command[command.index("--out") + 1]
    before = snapshot(out)
    ended = Ended(command, signal.Signals[f"SIG{number}"])
    ended.watch(moment)
    await_ends()
    after = snapshot(out)
    left = {name: sorted(after[name] - before[name]) for name in before if after[name] - before[name]}
    if cgroups := sorted(filter(os.path.isdir, ended.cgroups)):
        left["cgroups"] = cgroups
    print(json.dumps({**ended.account(), "left": left}))


class Ended:
    """A command and its end.

    Attributes:
        cgroups: those that its processes were in when the signal was sent, and the observer is not. The machine's other
            cgroups are no concern of this: any process of the machine may make some meanwhile.
    """

    def __init__(self, command: list[str], number: signal.Signals) -> None:
        self.cgroups: set[str] = set()
        self._number = number
        self._said_before = "nothing"
        self._said_after: list[str] = []
        self._sent_s = 0.0
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )

    def watch(self, moment: str) -> None:
        """Send the signal at the moment, and wait for the command's end."""
        if moment.replace(".", "", 1).isdigit():
            threading.Timer(float(moment), self.send).start()
        elif moment.startswith("/"):
            threading.Thread(target=self._await_file, args=(Path(moment),), daemon=True).start()
        listening = threading.Thread(target=self._listen, args=(moment,), daemon=True)
        listening.start()
        self._process.wait()
        self._ended_s = time.monotonic()
        listening.join(1.0)  # what survives the command may hold its standard error

    def _await_file(self, path: Path) -> None:
        while not path.exists():
            time.sleep(0.01)
        self.send()

    def _listen(self, moment: str) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if self._sent_s:
                self._said_after.append(line.strip())
            else:
                self._said_before = line.strip()
                if line.startswith(moment):
                    self.send()

    def send(self) -> None:
        """Send the signal; to the process group where a terminal would."""
        self.cgroups = cgroups_of_processes(Path("/proc")) - cgroups_of(Path("/proc/self"))
        self._sent_s = time.monotonic()
        if self._number == signal.SIGINT:
            os.killpg(self._process.pid, self._number)
        else:
            self._process.send_signal(self._number)

    def account(self) -> dict[str, Any]:
        """``killed_at``: what the command had said last; ``said``: what it said after the signal."""
        return {
            "killed_at": self._said_before,
            "said": self._said_after,
            "status": self._process.returncode,
            "took_s": round(self._ended_s - self._sent_s, 2),
        }


def await_ends() -> None:
    """Wait until all inherited processes are gone, or some have survived for too long."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(SURVIVAL_S)
    try:
        while True:
            os.wait()
    except (ChildProcessError, TimeoutError):
        signal.alarm(0)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def snapshot(out: str) -> dict[str, set[str]]:
    """Everything of this machine alone that a run could leave behind; its directory is what it should leave."""
    processes = {path.name for path in Path("/proc").glob("[0-9]*")}
    namespaces = {_link(path) for path in Path("/proc").glob("[0-9]*/ns/*")}
    files = [path for folder in FOLDERS for path in Path(folder).glob("**/*")]
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "processes": processes,
        "namespaces": namespaces,
        "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
        "interfaces": {line.split(":")[1].strip() for line in links.splitlines()},
        "files": {path for path in map(str, files) if not path.startswith(out)},
    }


def cgroups_of_processes(proc: Path) -> set[str]:
    """The cgroups of all processes that this PID namespace shows."""
    return set().union(*(cgroups_of(process) for process in proc.glob("[0-9]*")))


def cgroups_of(process: Path) -> set[str]:
    """The folders of a process's cgroups below their hierarchies' roots; none when it has just ended.

    A line of /proc/PID/cgroup is ``number:controllers:path``; the unified hierarchy has no controllers, and is mounted
    beside the others where there are others. A root is nobody's to leave behind, and of a process that is ending the
    kernel gives the root in place of the cgroup that it was in (``proc_cgroup_show``).
    """
    try:
        lines = (process / "cgroup").read_text().splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if path == "/":
            continue
        unified = "unified" if Path("/sys/fs/cgroup/unified").is_dir() else ""
        found.add(str(Path("/sys/fs/cgroup", controllers.removeprefix("name=") or unified) / path.lstrip("/")))
    return found


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


if __name__ == "__main__":
    main()
