"""What becomes of a run that is interrupted, killed, or loses a part: one run for each row of docs/failures.md.

Each run has a machine of its own (a sandbox), on which an observer does something to the run and looks at what is left.
Nothing is judged: the table says what was seen. ``--kills N`` adds N runs that are killed at random moments.
"""

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.machine import observe

EXPERIMENT = """
name = "brief"
protocol = "complete"
seed = 7

[underlay]
kind = "uniform"
hosts = 3
delay_ms = 5

[workload]
topics = 2
publish_rate_per_s = 10
warmup_s = 1
duration_s = {duration_s}
cooldown_s = 1

[interests]
ratio = 1.0
"""

AFTER = {
    "boot": "plan",
    "deploy": "boot",
    "probe before": "deploy",
    "warm-up": "probe before",
    "workload": "warmup",
    "cool-down": "workload",
    "stop": "cooldown",
    "settle": "stop",
    "probe after": "settle",
    "collect": "probe after",
}
"""A phase -> the step whose end begins it."""

LOST = {
    "agent killed": "kill-agent",
    "data plane's process killed": "kill-process",
    "data plane's monitor killed": "kill-monitor",
    "data plane's writer killed": "kill-writer",
    "capture in hosts killed": "kill-capture",
    "prober killed": "kill-prober",
    "Prometheus killed": "kill-prometheus",
    "one peer killed": "kill-peer",
    "disk full": "fill",
}

STEP = re.compile(r"[a-z0-9 ]+: [0-9.]+ s")
SHORT_S, LONG_S = 3, 40
LONGEST_S = 25.0
TIMEOUT_S = 240.0


def main(argv: list[str] | None = None) -> int:
    """Make the runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print all findings, one JSON document per line")
    parser.add_argument("--only", metavar="TEXT", default="", help="the rows whose name contains the text")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="SIGKILL at N random moments, too")
    given = parser.parse_args(argv)
    faults = [fault for fault in (*rows(), *kills(given.kills)) if given.only in fault[0]]
    if not given.json:
        print("| what happens | said after | what is said | ended after | exit status | verdict | left behind |")
        print("|---|---|---|---|---|---|---|", flush=True)
    for name, fault, moment, duration_s in faults:
        seen = see(fault, moment, duration_s)
        print(json.dumps({"row": name, **seen}) if given.json else as_row(name, seen), flush=True)
    return 0


def rows() -> Iterator[tuple[str, str, str, float]]:
    """Of each row its name, the fault, the moment and the length of the workload in s."""
    for phase, step in AFTER.items():
        yield f"Ctrl-C: {phase}", "INT", step, SHORT_S
    yield "Ctrl-C: analysis", "INT", "/manifest.json", SHORT_S
    yield "SIGTERM: workload", "TERM", "warmup", SHORT_S
    yield "SIGKILL: workload", "KILL", "warmup", SHORT_S
    for name, fault in LOST.items():
        # A lost part cuts a long workload short; a lost peer does not.
        yield name, fault, "warmup", SHORT_S if fault == "kill-peer" else LONG_S


def kills(count: int) -> Iterator[tuple[str, str, str, float]]:
    """SIGKILL at moments between the command's start and about its end."""
    for draw in range(count):
        moment_s = random.Random(draw).uniform(0, LONGEST_S)
        yield f"SIGKILL: after {moment_s:.3f} s", "KILL", f"{moment_s:.3f}", SHORT_S


def see(fault: str, moment: str, duration_s: float) -> dict[str, Any]:
    """Make a run on a machine of its own with a fault at a moment; the observer's account."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "brief.toml").write_text(EXPERIMENT.format(duration_s=duration_s), encoding="utf-8")
        out = folder / "disk" / "run"
        out.parent.mkdir()
        moment = f"{out}{moment}" if moment.startswith("/") else moment
        command = [sys.executable, "-m", "harness.cli", "run", str(folder / "brief.toml"), "--out", str(out)]
        seen = observe(fault, moment, command, folder, TIMEOUT_S)
        return json.loads(json.dumps(seen).replace(str(out), "RUN"))


def as_row(name: str, seen: dict[str, Any]) -> str:
    """A line of the table."""
    lines = [(at_s, line) for at_s, line in zip(seen["said_s"], seen["said"], strict=True) if not STEP.fullmatch(line)]
    words = "<br>".join(re.sub(r"trellis run: (\d\d:\d\d:\d\d )?", "", line) for _, line in lines) or "nothing"
    said_s = f"{lines[0][0]:.1f} s" if lines else ""
    left = ", ".join(f"{kind}: {' '.join(items)}" for kind, items in seen["left"].items()) or "nothing"
    cells = [name, said_s, words, f"{seen['took_s']:.1f} s", str(seen["status"]), verdict(seen), left]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def verdict(seen: dict[str, Any]) -> str:
    """The verdict and the reasons that speak of the fault: those of the running stage come first."""
    reasons: Sequence[str] = seen["reasons"]
    return f"{seen['verdict']}: {reasons[0]}" if reasons else seen["verdict"]


if __name__ == "__main__":
    sys.exit(main())
