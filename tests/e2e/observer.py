"""Runs inside a sandbox that stands for a whole machine: does something to a run, and says what it left there.

    python -m tests.e2e.observer FAULT MOMENT SURVIVAL COMMAND...

FAULT is KILL or TERM, which the command alone gets, or INT, which its process group gets, as by a terminal's Ctrl-C; or
``kill-PART``, which kills a process of the run (``tests.e2e.parts``); or ``fill``, which fills the disk that the run
directory is on, a small one of its own.
MOMENT is the step after whose end that is done, a file with whose appearance it is, or a number of seconds. Being
the first process of its PID namespace, the observer inherits whatever outlives the run, and waits for it, for SURVIVAL
seconds at most.
"""

import contextlib
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

from tests.e2e.parts import find_part

DISK_MIB = 64
FILLER = "filler"
FOLDERS = ("/tmp", "/var/tmp", "/run", "/dev/shm")


def main() -> None:
    """Print what happened, and the differences that an ended run makes (``left``), as JSON; {} = it left nothing."""
    fault, moment, survival_s, command = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    out = command[command.index("--out") + 1]
    if fault == "fill":
        options = ["-o", f"size={DISK_MIB}m", "tmpfs", str(Path(out).parent)]
        subprocess.run(["mount", "-t", "tmpfs", *options], check=True)
    before = snapshot(out)
    ended = Ended(command, fault, Path(out))
    ended.watch(moment)
    await_ends(survival_s)
    Path(out).with_name(FILLER).unlink(missing_ok=True)
    after = snapshot(out)
    left = {name: sorted(after[name] - before[name]) for name in before if after[name] - before[name]}
    if cgroups := sorted(filter(os.path.isdir, ended.cgroups)):
        left["cgroups"] = cgroups
    print(json.dumps({**ended.account(), **outcome(Path(out)), "left": left}))


class Ended:
    """A command and its end.

    Attributes:
        cgroups: those that its processes were in when the signal was sent, and the observer is not. The machine's other
            cgroups are no concern of this: any process of the machine may make some meanwhile.
    """

    def __init__(self, command: list[str], fault: str, out: Path) -> None:
        self.cgroups: set[str] = set()
        self._fault = fault
        self._out = out
        self._said_before = "nothing"
        self._said_after: list[str] = []
        self._said_at_s: list[float] = []
        self._sent_s = 0.0
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background may have inherited that it is ignored
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
                self._said_at_s.append(round(time.monotonic() - self._sent_s, 2))
            else:
                self._said_before = line.strip()
                if line.startswith(moment):
                    self.send()

    def send(self) -> None:
        """Do what is to be done; a signal goes to the process group where a terminal's would."""
        self.cgroups = cgroups_of_processes(Path("/proc")) - cgroups_of(Path("/proc/self"))
        self._sent_s = time.monotonic()
        kind, _, part = self._fault.partition("-")
        if kind == "kill":
            os.kill(find_part(self._process.pid, part), signal.SIGKILL)
        elif kind == "fill":
            fill(self._out.with_name(FILLER))
        elif kind == "INT":
            os.killpg(self._process.pid, signal.SIGINT)
        else:
            self._process.send_signal(signal.Signals[f"SIG{kind}"])

    def account(self) -> dict[str, Any]:
        """``killed_at``: what the command had said last; ``said``: what it said afterwards, ``said_s`` later."""
        return {
            "killed_at": self._said_before,
            "said": self._said_after,
            "said_s": self._said_at_s,
            "status": self._process.returncode,
            "took_s": round(self._ended_s - self._sent_s, 2),
        }


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 20))


def outcome(out: Path) -> dict[str, Any]:
    """The verdict, with its reasons; "" = none."""
    summary = out / "summary.json"
    if not summary.exists():
        return {"verdict": "", "reasons": []}
    told = json.loads(summary.read_bytes())
    return {"verdict": told["verdict"], "reasons": told["reasons"]}


def await_ends(survival_s: int) -> None:
    """Wait until all inherited processes are gone, or some have survived for too long."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(survival_s)
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
