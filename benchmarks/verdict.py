"""The verdict's two error rates: how often calm runs are not ``valid``, and how often disturbed ones are.

    trellis bench verdict --calm 40 --stalls 20 --overload 20 --out DIR

* ``calm``: the quickstart, one run after the other, with nothing beside it.
* ``stalls``: the same while every processor is taken for 20 ms at random instants, 0.6 per second, by a process of a
  higher real-time priority than anything of a run: what a hypervisor does that gives the processors to somebody else.
* ``overload``: more than the machine carries, in turn: publications at 2 to 8 times the highest rate that it carries
  (``--rate``, found by doubling where it is not given), processors taken in several ways, and a data plane that is
  stopped for 0.2 s.

A run takes more than a minute. Every result is a line of ``DIR/results.jsonl``; called again with the same DIR, the
program goes on where it was ended.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import _disturbance as disturbance

CHECKOUT = Path(__file__).parents[1]
QUICKSTART = CHECKOUT / "playbooks/experiments/quickstart.toml"
STALLS_PER_S, STALL_S = 0.6, 0.02
STOP_S = 0.2
LEAST_RATE_PER_S = 32.0
FACTORS = (2, 3, 4, 6, 8)
RUN_S = 900

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
    parser.add_argument("--stalls", type=int, default=2, metavar="N")
    parser.add_argument("--overload", type=int, default=2, metavar="N")
    parser.add_argument("--rate", type=float, metavar="PER_S", help="highest rate of publications that comes out valid")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where runs and results are kept; default: nowhere")
    given = parser.parse_args(argv)
    with _folder(given.out) as folder:
        series = Series(folder)
        series.repeat("calm", given.calm, lambda _: nullcontext())
        series.repeat("stalls", given.stalls, _stalls)
        if given.overload:
            _overload(series, given.overload, given.rate)
        print(json.dumps(series.results) if given.json else _table(series.results))
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

    def repeat(self, condition: str, runs: int, disturb: Disturb) -> None:
        """Have as many runs of a condition, with seeds 1, 2, ..."""
        for seed in range(1, runs + 1):
            self.have(condition, "", seed, disturb)

    def have(self, condition: str, variant: str, seed: int, disturb: Disturb, *settings: str) -> dict[str, Any]:
        """A run's result, made unless it is there."""
        key = (condition, variant, seed)
        for result in self.results:
            if (result["condition"], result["variant"], result["seed"]) == key:
                return result
        name = "-".join(filter(None, (condition, "".join(c if c.isalnum() else "_" for c in variant), str(seed))))
        result = {"condition": condition, "variant": variant, "seed": seed}
        result |= _run(self._folder / _free(self._folder, name), seed, disturb, settings)
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
    words = ["run", str(QUICKSTART), "--seed", str(seed), "--out", str(run_dir), "--json"]
    words += [word for setting in settings for word in ("--set", setting)]
    with disturb(seed):
        started_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "harness.cli", *words],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        took_s = time.monotonic() - started_s
    if not done.stdout:
        return {"verdict": "failed", "reasons": done.stderr.strip().splitlines()[-1:], "checks": [], "took_s": took_s}
    summary = json.loads(done.stdout.splitlines()[-1])
    return {
        "verdict": summary["verdict"],
        "reasons": summary["reasons"],
        "checks": _failed_checks(run_dir),
        "took_s": round(took_s, 1),
    }


def _failed_checks(run_dir: Path) -> list[dict[str, Any]]:
    """The failed rows of the ``checks`` table."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(run_dir / "tables" / "checks.parquet").to_pylist()
    return [row for row in rows if row["failed"]]


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
            plane = disturbance.find_descendant(os.getpid(), "dataplane.process")
            disturbance.find_descendant(os.getpid(), "prometheus")
        except LookupError:
            continue
        ended.wait(random.Random(seed).uniform(8.0, 25.0))  # the warm-up is over, the workload goes on
        if not ended.is_set():
            disturbance.stop_for(plane, STOP_S)
        return


def _table(results: list[dict[str, Any]]) -> str:
    lines = [f"{'condition':<50} runs  valid  suspect  invalid  failed  first_packet"]
    names = dict.fromkeys(" ".join(filter(None, (result["condition"], result["variant"]))) for result in results)
    for name in names:
        those = [r for r in results if " ".join(filter(None, (r["condition"], r["variant"]))) == name]
        counts = [sum(r["verdict"] == verdict for r in those) for verdict in ("valid", "suspect", "invalid", "failed")]
        first = sum(any(check["name"] == "first_packet" for check in r["checks"]) for r in those)
        lines.append(
            f"{name:<50} {len(those):>4}  {counts[0]:>5}  {counts[1]:>7}  {counts[2]:>7}  {counts[3]:>6}  {first:>12}"
        )
    reasons = [f"{r['condition']} {r['variant']} seed {r['seed']}: {text}" for r in results for text in r["reasons"]]
    return "\n".join([*lines, "", *reasons])


if __name__ == "__main__":
    sys.exit(main())
