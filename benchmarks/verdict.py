"""The verdict's two error rates: how often sound runs are not ``valid``, and how often disturbed or wrong ones are.

    trellis bench verdict --calm 40 --small 20 --lossy 20 --stalls 20 --overload 20 --faults 10 --recorded 10 --out DIR

* ``calm``: the quickstart, one run after the other, with nothing beside it.
* ``small``: the same with 6 hosts and 9 s.
* ``lossy``: the quickstart with orderly churn and a loss of 1 %.
* ``stalls``: the same while every processor is taken for 20 ms at random instants, 0.6 per second, by a process of a
  higher real-time priority than anything of a run: what a hypervisor does that gives the processors to somebody else.
* ``overload``: more than the machine carries, in turn: publications at 2 to 8 times the highest rate that it carries
  (``--rate``, found by doubling where it is not given), processors taken in several ways, and a data plane that is
  stopped for 0.2 s.

* ``faults``: runs of ``_faults.LIVE``, whose network is not the one that was asked for.
* ``recorded``: copies of the calm runs with the faults of ``_faults.RECORDED``, analysed again.

``--sizes N`` looks for the smallest size of each fault that is found in N of N runs. A run takes up to a minute. Every
result is a line of ``DIR/results.jsonl``; called again with the same DIR, the program goes on where it was ended.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import _disturbance as disturbance
import msgspec

from benchmarks._edited_runs import copy_run
from benchmarks._faults import LIVE, RECORDED, LiveFault, RecordedFault
from harness.experiment.loader import load_experiment
from harness.machine import sandbox
from harness.planning.documents import write_plan
from harness.planning.planner import make_plan
from harness.stages.repetition import is_spoiled_by_host
from metrics.intervals import proportion_interval
from metrics.rundir import FAILED, NOT_JUDGED, Summary

CHECKOUT = Path(__file__).parents[1]
QUICKSTART = CHECKOUT / "playbooks/experiments/quickstart.toml"
STALLS_PER_S, STALL_S = 0.6, 0.02
STOP_S = 0.2
LEAST_RATE_PER_S = 32.0
FACTORS = (2, 3, 4, 6, 8)
RUN_S = 900
SMALL = ("underlay.hosts=6", "workload.duration_s=9")
LOSSY = ("underlay.loss_ratio=0.01", "churn.kind=exponential", "churn.on_s=20", "churn.off_s=5")
FAULT_SETTINGS = ("underlay.hosts=8", "workload.duration_s=12", "workload.publish_rate_per_s=8", "workload.warmup_s=4")

CPUS = len(os.sched_getaffinity(0))
Disturb = Callable[[int], AbstractContextManager[None]]
"""What is done while the run of a seed goes on."""

HOGS: dict[str, Disturb] = {
    "4 spinning per processor": lambda _: disturbance.hogs(disturbance.spin, 4 * CPUS),
    "12 spinning per processor": lambda _: disturbance.hogs(disturbance.spin, 12 * CPUS),
    "4 copying memory per processor": lambda _: disturbance.hogs(disturbance.copy_memory, 4 * CPUS),
    "4 starting processes per processor": lambda _: disturbance.hogs(disturbance.start_processes, 4 * CPUS),
    "real-time, half of every 20 ms": lambda _: disturbance.hogs(disturbance.take_share(0.5), CPUS),
    "real-time, 80 % of every 20 ms": lambda _: disturbance.hogs(disturbance.take_share(0.8), CPUS),
}


def main(argv: list[str] | None = None) -> int:
    """Make the runs that are still missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--calm", type=int, default=3, metavar="N")
    parser.add_argument("--small", type=int, default=0, metavar="N")
    parser.add_argument("--lossy", type=int, default=0, metavar="N")
    parser.add_argument("--faults", type=int, default=0, metavar="N")
    parser.add_argument("--recorded", type=int, default=0, metavar="N", help="of as many calm runs")
    parser.add_argument("--sizes", type=int, default=0, metavar="N")
    parser.add_argument("--stalls", type=int, default=2, metavar="N")
    parser.add_argument("--overload", type=int, default=2, metavar="N")
    parser.add_argument("--rate", type=float, metavar="PER_S", help="highest rate of publications that comes out valid")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where runs and results are kept; default: nowhere")
    given = parser.parse_args(argv)
    with _folder(given.out) as folder:
        series = Series(folder)
        series.repeat("calm", max(given.calm, given.recorded), lambda _: nullcontext())
        series.repeat("small", given.small, lambda _: nullcontext(), *SMALL)
        series.repeat("lossy", given.lossy, lambda _: nullcontext(), *LOSSY)
        series.repeat("stalls", given.stalls, _stalls)
        for name, fault in RECORDED.items():
            series.inject(name, fault, given.recorded, given.sizes)
        for name, fault in LIVE.items():
            series.inject(name, fault, given.faults, given.sizes)
        if given.overload:
            _overload(series, given.overload, given.rate)
        print(json.dumps(series.results) if given.json else _table(series.results) + _fault_table(series.results))
    return 0


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="trellis-verdict-") as folder:
        yield Path(folder)


class Series:
    """The runs so far, kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "results.jsonl"
        self.results: list[dict[str, Any]] = []
        if self._file.exists():
            self.results = [json.loads(line) for line in self._file.read_text(encoding="utf-8").splitlines()]

    def repeat(self, condition: str, runs: int, disturb: Disturb, *settings: str) -> None:
        """Have as many runs of a condition, with seeds 1, 2, ..."""
        for seed in range(1, runs + 1):
            self.have(condition, "", seed, disturb, *settings)

    def inject(self, name: str, fault: LiveFault | RecordedFault, runs: int, smaller: int) -> None:
        """Have as many runs with a fault of its first size, and some of each smaller one as long as all find it."""
        for place, size in enumerate(fault.sizes):
            results = [self._wrong(name, fault, size, seed) for seed in range(1, (smaller if place else runs) + 1)]
            if not all(result["found"] for result in results):
                return

    def _wrong(self, name: str, fault: LiveFault | RecordedFault, size: float, seed: int) -> dict[str, Any]:
        def make(run_dir: Path) -> dict[str, Any]:
            if isinstance(fault, LiveFault):
                found = _run_wrong(run_dir, name, fault, size, seed)
            else:
                calm = self.have("calm", "", seed, lambda _: nullcontext())
                found = _edit_run(Path(calm["run_dir"]), run_dir, fault, size)
            named = {check["name"] for check in found["checks"]} & set(fault.found_by)
            return found | {"found": found["verdict"] != "valid" and bool(named), "found_by": sorted(named)}

        return self._have("fault", f"{name} {size:g}", seed, make)

    def have(self, condition: str, variant: str, seed: int, disturb: Disturb, *settings: str) -> dict[str, Any]:
        """A run's result, made unless it is there."""
        return self._have(condition, variant, seed, lambda run_dir: _run(run_dir, seed, disturb, settings))

    def _have(self, condition: str, variant: str, seed: int, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        key = (condition, variant, seed)
        for result in self.results:
            if (result["condition"], result["variant"], result["seed"]) == key:
                return result
        name = "-".join(filter(None, (condition, "".join(c if c.isalnum() else "_" for c in variant), str(seed))))
        run_dir = self._folder / _free(self._folder, name)
        result = {"condition": condition, "variant": variant, "seed": seed, "run_dir": str(run_dir)} | make(run_dir)
        self.results.append(result)
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(result) + "\n")
        print(f"{name}: {result['verdict']} {'; '.join(result['reasons'])}", file=sys.stderr, flush=True)
        return result


def _free(folder: Path, name: str) -> str:
    """The name, numbered where an earlier call was ended in a run of that name."""
    tries = (name if not number else f"{name}.{number}" for number in range(1000))
    return next(each for each in tries if not (folder / each).exists())


def _run(run_dir: Path, seed: int, disturb: Disturb, settings: tuple[str, ...]) -> dict[str, Any]:
    """One quickstart, disturbed."""
    words = ["run", str(QUICKSTART), "--seed", str(seed), "--out", str(run_dir)]
    words += [word for setting in settings for word in ("--set", setting)]
    with disturb(seed):
        started_s = time.monotonic()
        done = _trellis(*words)
        took_s = time.monotonic() - started_s
    return _judged(run_dir, done) | {"took_s": round(took_s, 1)}


def _run_wrong(run_dir: Path, name: str, fault: LiveFault, size: float, seed: int) -> dict[str, Any]:
    """One short quickstart with a fault."""
    overrides = [*FAULT_SETTINGS, *fault.settings]
    write_plan(make_plan(load_experiment(QUICKSTART, overrides, seed), QUICKSTART), run_dir)
    stage = [sys.executable, "-P", str(Path(__file__).with_name("_faulty_stage.py")), str(run_dir), name, str(size)]
    sandbox.run(stage, keep=[run_dir])
    return _judged(run_dir, _trellis("tables", str(run_dir), "--master", "here"))


def _edit_run(recorded: Path, run_dir: Path, fault: RecordedFault, size: float) -> dict[str, Any]:
    """Analyse a copy of a recorded run with a fault."""
    copy_run(recorded, run_dir)
    changed = fault.edit(run_dir, size)
    found = _judged(run_dir, _trellis("tables", str(run_dir), "--master", "here"))
    shutil.rmtree(run_dir)
    return found | {"changed": changed}


def _trellis(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "harness.cli", *words]
    return subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=RUN_S, check=False)


def _judged(run_dir: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a run's summary says; ``done`` is the command that wrote it."""
    path = run_dir / "summary.json"
    if not path.exists():
        return {"verdict": "failed", "reasons": done.stderr.strip().splitlines()[-1:], "checks": []}
    summary = msgspec.json.decode(path.read_bytes(), type=Summary)
    found = [check for check in summary.checks if check.outcome in (FAILED, NOT_JUDGED)]
    return {
        "verdict": summary.verdict,
        "reasons": list(summary.reasons),
        "checks": [msgspec.to_builtins(check) for check in found],
        "by_stalls": is_spoiled_by_host(summary),
    }


def _stalls(seed: int) -> AbstractContextManager[None]:
    return disturbance.hogs(disturbance.stall_at_random(seed, STALLS_PER_S, STALL_S), CPUS)


def _overload(series: Series, runs: int, rate_per_s: float | None) -> None:
    """The overloaded runs: every variant in turn."""
    carried = rate_per_s or _highest_rate(series)
    variants: list[tuple[str, Disturb, tuple[str, ...]]] = [
        (f"{factor} x {carried:g}/s", lambda _: nullcontext(), (f"workload.publish_rate_per_s={factor * carried:g}",))
        for factor in FACTORS
    ]
    variants += [(name, disturb, ()) for name, disturb in HOGS.items()]
    variants += [(f"data plane stopped for {STOP_S:g} s", _stop_plane, ())]
    for number in range(runs):
        variant, disturb, settings = variants[number % len(variants)]
        series.have("overload", variant, number // len(variants) + 1, disturb, *settings)


def _highest_rate(series: Series) -> float:
    """The highest valid rate among ``LEAST_RATE_PER_S`` and its doubles."""
    rate = LEAST_RATE_PER_S
    while True:
        setting = f"workload.publish_rate_per_s={rate:g}"
        result = series.have("search", f"{rate:g}/s", 1, lambda _: nullcontext(), setting)
        if result["verdict"] != "valid":
            return rate / 2
        rate *= 2


@contextmanager
def _stop_plane(seed: int) -> Iterator[None]:
    """Stop the data plane once, at a random instant of the workload."""
    ended = threading.Event()
    thread = threading.Thread(target=_stop_when_working, args=(seed, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stop_when_working(seed: int, ended: threading.Event) -> None:
    """Find the data plane below this process, and the capture that begins with the warm-up; then wait and stop it."""
    while not ended.wait(0.5):
        try:
            plane = disturbance.find_descendant(os.getpid(), "userspace.process")
            disturbance.find_descendant(os.getpid(), "prometheus")
        except LookupError:
            continue
        ended.wait(random.Random(seed).uniform(8.0, 25.0))  # the warm-up is over, the workload goes on
        if not ended.is_set():
            disturbance.stop_for(plane, STOP_S)
        return


def _table(results: list[dict[str, Any]]) -> str:
    """How many runs of each condition had which verdict, and the interval of the share that is not valid.

    ``explained``: stalls of the host explain all reasons.
    """
    lines = [f"{'condition':<50} runs  valid  suspect  invalid  failed  explained  not valid, 95 % interval"]
    names = dict.fromkeys(_name(result) for result in results if result["condition"] != "fault")
    for name in names:
        those = [result for result in results if _name(result) == name]
        counts = [sum(r["verdict"] == verdict for r in those) for verdict in ("valid", "suspect", "invalid", "failed")]
        explained = sum(bool(r.get("by_stalls")) for r in those)
        cells = "  ".join(f"{count:>{width}}" for count, width in zip(counts, (5, 7, 7, 6), strict=True))
        low, high = proportion_interval(len(those) - counts[0], len(those))
        lines.append(f"{name:<50} {len(those):>4}  {cells}  {explained:>9}  {100 * low:.1f} to {100 * high:.1f} %")
    sound = (r for r in results if r["condition"] != "fault")
    reasons = [f"{_name(r)} seed {r['seed']}: {text}" for r in sound for text in r["reasons"]]
    return "\n".join([*lines, "", *reasons])


def _name(result: dict[str, Any]) -> str:
    return " ".join(filter(None, (result["condition"], result["variant"])))


def _fault_table(results: list[dict[str, Any]]) -> str:
    """The faults as a table of docs/verdict.md: at their first size, and the smallest size that was always found."""
    rows = []
    for name, fault in (RECORDED | LIVE).items():
        by_size = {size: [r for r in results if r["variant"] == f"{name} {size:g}"] for size in fault.sizes}
        first = by_size[fault.sizes[0]]
        if not first:
            continue
        found = [result for result in first if result["found"]]
        by = Counter(check for result in found for check in result["found_by"])
        checks = ", ".join(f"`{check}` {count}" for check, count in by.most_common())
        always = [size for size, those in by_size.items() if those and all(result["found"] for result in those)]
        smallest = f"{always[-1]:g} ({len(by_size[always[-1]])} of {len(by_size[always[-1]])})" if always else "none"
        kind = "run" if isinstance(fault, LiveFault) else "copy"
        size = smallest if sum(bool(those) for those in by_size.values()) > 1 else ""
        text = fault.text.format(fault.sizes[0])
        rows.append(f"| {text} | {kind} | {len(found)} of {len(first)} | {checks} | {size} |")
    if not rows:
        return ""
    head = ["| fault | in | found in | by | smallest size that is found |", "|---|---|---|---|---|"]
    return "\n\n" + "\n".join([*head, *rows])


if __name__ == "__main__":
    sys.exit(main())
