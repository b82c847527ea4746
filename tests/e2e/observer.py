"""Runs inside a sandbox that stands for a whole machine: kills a run, and says what it left on that machine.

    python -m tests.e2e.observer MOMENT COMMAND...

MOMENT is the step after whose end the run is killed, or a number of seconds. Being the first process of its PID
namespace, the observer inherits whatever outlives the run, and waits for it in vain if it does not die.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

SURVIVAL_S = 10
FOLDERS = ("/tmp", "/var/tmp", "/run", "/dev/shm")


def main() -> None:
    """Print the differences that a killed run makes, as JSON; {} when it leaves nothing."""
    moment, command = sys.argv[1], sys.argv[2:]
    out = command[command.index("--out") + 1]
    before = snapshot(out)
    killed_at = kill_at(moment, command)
    await_ends()
    after = snapshot(out)
    left = {name: sorted(after[name] - before[name]) for name in before if after[name] - before[name]}
    print(json.dumps({"killed_at": killed_at, "left": left}))


def kill_at(moment: str, command: list[str]) -> str:
    """Start the run and kill it at its moment; what it had said last."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    if moment.replace(".", "", 1).isdigit():
        timer = threading.Timer(float(moment), process.kill)
        timer.start()
    said = "nothing"
    for line in process.stderr:
        said = line.strip()
        if said.startswith(moment):
            break
    process.kill()
    process.wait()
    return said


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
    """Everything of this machine that a run could leave behind; its directory is what it should leave."""
    processes = {path.name for path in Path("/proc").glob("[0-9]*")}
    namespaces = {_link(path) for path in Path("/proc").glob("[0-9]*/ns/*")}
    files = [path for folder in FOLDERS for path in Path(folder).glob("**/*")]
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "processes": processes,
        "namespaces": namespaces,
        "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
        "interfaces": {line.split(":")[1].strip() for line in links.splitlines()},
        "cgroups": {str(path) for path in Path("/sys/fs/cgroup").glob("**/")},
        "files": {path for path in map(str, files) if not path.startswith(out)},
    }


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""


if __name__ == "__main__":
    main()
