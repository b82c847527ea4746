"""What peers of an implementation cost in processor time, and how near a prediction by these costs is.

    trellis bench programs [NAME ...] [--out DIR]

NAME is an implementation that ``trellis fetch`` has fetched, or a file ``.toml``; default: go-libp2p, js-libp2p and
py-libp2p. Each of them makes a run with ``--hosts`` hosts for each of ``--rates`` (messages/s), and a run with
``--check-hosts`` hosts and ``--check-rate``. All are runs of ``playbooks/experiments/implementations.toml`` with 15 s
of warm-up and 20 s of messages, and take a minute or little more each. A run that ``--out`` already has is not made
again; a run that is not used is, if you remove its folder.

The processor time of all processes in the hosts is counted over the workload (``peers_cpu_s`` of the manifest). The
machine is calibrated before and after each run, and the mean says how fast it was. ``idle_cpu_ms_per_s`` and
``copy_cpu_us`` are the two costs at the reference machine with which the runs of ``--rates`` agree best (least squares
of relative differences). The copies of a message are those that the plan predicts, since a prediction multiplies its
frames by ``copy_cpu_us``. The run of ``--check-rate`` is in no fit: the last lines compare it with its prediction.
``peers`` and ``all`` are busy processors: of the processes in the hosts, and of the whole machine with whatever else
runs there. Use a machine with nothing else to do.

A run is not used if it was cut short or a peer failed, if programs published or delivered too little, if the machine
had no processor time left, or if its speed changed.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from benchmarks._calibrated_runs import AFTER, BEFORE, RUN, busy_share, make_run, read_calibration
from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.implementations import find_implementation
from harness.machine.calibration import Calibration
from harness.planning import read_plan
from harness.planning.needs import PEER_MIB
from harness.planning.plan import Prediction
from harness.planning.processors import REFERENCE_WORK_US, foresee
from metrics.reasons import describe_end
from metrics.rundir import RunDir
from metrics.rundir.documents import FAILED
from peer.core.schedule import Publish

EXPERIMENT: Final = "playbooks/experiments/implementations.toml"
NAMES: Final = ("go-libp2p", "js-libp2p", "py-libp2p")
RATES: Final = (1.0, 12.0)
"""Far apart, so that the costs of a peer and of a copy are told apart."""

HOSTS: Final = 10
CHECK_HOSTS, CHECK_RATE = 20, 4.0
"""Those of the quickstart."""

SETTINGS: Final = {"peer.connect": 6, "workload.warmup_s": 15, "workload.duration_s": 20}

LEAST_DELIVERED: Final = 0.8
"""The least share of deliveries of a run that is used. GossipSub misses some where subscribers of a topic are in no
connected graph; programs that could not connect miss most."""

MOST_BUSY: Final = 0.9
"""The largest busy share of the machine in a run that is used: above it, peers did less than they had to."""

MOST_DRIFT: Final = 1.3
"""The largest ratio of the calibrations before and after a run that is used."""

WITHIN: Final = 0.3
"""How near a prediction should be, relative to what was measured."""


class Point(Struct, frozen=True):
    """A run that is asked for; ``fitted``: whether the costs are fitted to it."""

    implementation: str
    hosts: int
    rate_per_s: float
    seed: int
    fitted: bool

    @property
    def words(self) -> list[str]:
        """The words of ``trellis run``."""
        keys: dict[str, object] = {
            "peer.implementation": self.implementation,
            "underlay.hosts": self.hosts,
            "workload.publish_rate_per_s": f"{self.rate_per_s:g}",
            **SETTINGS,
        }
        overrides = (word for key, value in keys.items() for word in ("--set", f"{key}={value}"))
        return [EXPERIMENT, *overrides, "--seed", str(self.seed)]

    @property
    def folder(self) -> str:
        """The name of its folder; that of a file has a hash of its content."""
        path = Path(self.implementation)
        name = f"{path.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}" if path.suffix else path.name
        return f"{name}-{self.hosts}-{self.rate_per_s:g}-{self.seed}"


class Used(Struct, frozen=True):
    """What a run used.

    Attributes:
        experiment: with every default resolved.
        prediction: of its plan.
        hosts: of the run.
        calibration: of the machine; its ``work_us`` is the mean of those before and after.
        copies_per_s: of messages, as the plan predicts them for the messages that were published.
        peers: processors that the processes in the hosts kept busy in the workload.
        everything: processors that were busy in the workload.
        memory_mib: memory (PSS) of the processes of a host, the mean.
    """

    experiment: Experiment
    prediction: Prediction
    hosts: int
    calibration: Calibration
    copies_per_s: float
    peers: float
    everything: float
    memory_mib: float

    @property
    def slowness(self) -> float:
        """How much longer this machine takes than the reference machine."""
        return self.calibration.work_us / REFERENCE_WORK_US


class Costs(Struct, frozen=True):
    """The keys of an implementation's file, at the reference machine."""

    idle_cpu_ms_per_s: float
    copy_cpu_us: float

    def peers(self, used: Used) -> float:
        """Return how many processors the peers of a run keep busy by these costs."""
        return float(_sizes(used) @ np.array(astuple(self))) * used.slowness


class Row(Struct, frozen=True):
    """A run that was asked for, and what it used; ``problem``: why it is not used, empty if it is."""

    point: Point
    place: Path
    used: Used | None
    problem: str
    verdict: str


def main(argv: list[str] | None = None) -> int:
    """Make the runs that are missing, and print them, the costs and the predictions.

    Returns:
        0 if all implementations have costs and a run to compare a prediction with, otherwise 1; 2: one of them is not
        there.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"implementations (default: {', '.join(NAMES)})")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hosts", type=int, default=HOSTS, metavar="N", help=f"of the fitted runs ({HOSTS})")
    text = f"messages/s of the fitted runs, at least two rates ({' '.join(f'{each:g}' for each in RATES)})"
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, metavar="R", help=text)
    parser.add_argument("--check-hosts", type=int, default=CHECK_HOSTS, metavar="N", help=f"({CHECK_HOSTS})")
    parser.add_argument("--check-rate", type=float, default=CHECK_RATE, metavar="R", help=f"({CHECK_RATE:g})")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the runs here, and go on where they end")
    given = parser.parse_args(argv)
    if len(set(given.rates)) < 2:
        parser.error("--rates: expected at least two different rates")
    try:
        names = [_find(name) for name in given.names or NAMES]
    except ExperimentError as error:
        print(f"programs: {error}", file=sys.stderr)
        return 2
    check = (given.check_hosts, given.check_rate)
    with tempfile.TemporaryDirectory(prefix="bench-programs-") as folder:
        out = (given.out or Path(folder)).absolute()
        rows = [measure(point, out) for point in list_points(names, given.hosts, given.rates, check)]
        results = {name: judge([row for row in rows if row.point.implementation == name]) for name in names}
    print(json.dumps(_document(rows, results)) if given.json else "\n".join(describe(rows, results)))
    return 0 if all("checks" in result for result in results.values()) else 1


def _find(name: str) -> str:
    """Return the name of an implementation, or the absolute path of its file.

    Raises:
        ExperimentError: it is not there, or it has not been fetched.
    """
    found = find_implementation(name, "NAME")
    if not found.is_there:
        raise ExperimentError("NAME", f"{found.name} has not been fetched; try: trellis fetch {name}")
    return str(found.path) if name.endswith(".toml") else name


def list_points(names: Sequence[str], hosts: int, rates: Sequence[float], check: tuple[int, float]) -> list[Point]:
    """Return the runs that are asked for.

    Args:
        names: of the implementations.
        hosts: of the fitted runs.
        rates: of the fitted runs, in messages/s.
        check: hosts and rate of the run that is not fitted.
    """
    sizes = [*((hosts, rate) for rate in rates), check]
    return [
        Point(name, *size, seed=number, fitted=number <= len(rates))
        for name in names
        for number, size in enumerate(sizes, 1)
    ]


def measure(point: Point, out: Path) -> Row:
    """Return what the run of a point used; the run is made unless it is there."""
    place = out / point.folder
    try:
        make_run(point.words, place)
    except RuntimeError as error:
        return Row(point, place, None, str(error), "none")
    run = RunDir(place / RUN)
    used = find_problem(run) or read_used(run, *(read_calibration(place / name) for name in (BEFORE, AFTER)))
    if isinstance(used, str):
        return Row(point, place, None, used, run.summary.verdict)
    return Row(point, place, used, "", run.summary.verdict)


def find_problem(run: RunDir) -> str:
    """Return why a run says nothing of what programs cost, as a phrase; empty if it does.

    A verdict that is not valid is no reason: late packets do not change the processor time.
    """
    manifest = run.manifest
    if run.phase("workload") is None or "peers_cpu_s" not in manifest.resources:
        return "it was cut short"
    ends = (describe_end(state, manifest.timeline, ()) for state in manifest.final_states)
    lost = (text for _, text in manifest.problems if text.startswith("lost during the run"))
    if found := next(filter(None, (*ends, *lost)), ""):
        return found
    if any(check.name == "schedule_executed" and check.outcome == FAILED for check in run.summary.checks):
        return "not all messages were published"
    delivered = run.summary.headline.get("delivery_ratio") or 0.0
    return "" if delivered >= LEAST_DELIVERED else f"{delivered:.0%} of the deliveries were made"


def read_used(run: RunDir, before: Calibration, after: Calibration) -> Used | str:
    """Return what a run used of which ``find_problem`` finds nothing.

    Args:
        run: the run.
        before: the machine before it.
        after: the machine after it.

    Returns:
        What it used, or why that says nothing of the programs, as a phrase.
    """
    planned = read_plan(run.path)
    experiment, prediction = planned.plan.experiment, planned.plan.prediction
    workload, hosts, resources = experiment.workload, len(planned.plan.placement), run.manifest.resources
    slow, fast = max(before.work_us, after.work_us), min(before.work_us, after.work_us)
    if slow > MOST_DRIFT * fast:
        return f"the machine changed: {before.work_us:.0f} us of work before, {after.work_us:.0f} us after"
    if (share := busy_share(run, workload.duration_s)) > MOST_BUSY:
        return f"{share:.0%} of the machine was busy"
    if prediction.frames_per_s is None:
        return "the number of copies is not predicted"
    published = sum(isinstance(action, Publish) for action in planned.schedule)
    return Used(
        experiment=experiment,
        prediction=prediction,
        hosts=hosts,
        calibration=replace(before, work_us=(before.work_us + after.work_us) / 2),
        copies_per_s=prediction.frames_per_s * published / (workload.publish_rate_per_s * workload.duration_s),
        peers=resources["peers_cpu_s"] / workload.duration_s,
        everything=share * before.processors,
        memory_mib=resources["peers_pss_mib"] / hosts,
    )


def _sizes(used: Used) -> npt.NDArray[np.float64]:
    """Return what a run has of each of ``Costs``, such that the products add up to processors."""
    return np.array([used.hosts / 1e3, used.copies_per_s / 1e6])


def fit(runs: Sequence[Used]) -> Costs | str:
    """Return the costs with which runs agree best, or why there are none, as a phrase."""
    if len(runs) < 2:
        return f"{len(runs)} of the fitted runs can be used, at least two are needed"
    needed = np.array([used.peers / used.slowness for used in runs])
    relative = np.array([_sizes(used) for used in runs]) / needed[:, None]
    found, _, rank, _ = np.linalg.lstsq(relative, np.ones(len(runs)), rcond=None)
    if rank < 2:
        return "all fitted runs have as many copies per host"
    costs = Costs(*map(float, found))
    if min(astuple(costs)) < 0:
        return f"the fitted runs give {costs.idle_cpu_ms_per_s:.3g} ms/s and {costs.copy_cpu_us:.3g} us: one is below 0"
    return costs


def judge(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the costs of an implementation, and what they predict of the runs to which they are not fitted.

    Returns:
        ``costs`` and ``checks``, or a ``problem``.
    """
    costs = fit([row.used for row in rows if row.point.fitted and row.used is not None])
    if isinstance(costs, str):
        return {"problem": costs}
    checks = [_compare(costs, row.used) for row in rows if not row.point.fitted and row.used is not None]
    compared = {"checks": checks} if checks else {"problem": "there is no run to compare a prediction with"}
    return {"costs": asdict(costs), **compared}


def _compare(costs: Costs, used: Used) -> dict[str, float | bool]:
    """Return what was measured of a run and what is predicted: busy processors, and memory of a host in MiB."""
    outlook = foresee(with_costs(used.experiment, costs), used.prediction, used.hosts, used.calibration)
    predicted = {
        "peers": costs.peers(used),
        "everything": outlook.processors,
        "memory_mib": used.experiment.peer.memory_mib + PEER_MIB,
    }
    found: dict[str, float | bool] = {}
    for name, value in predicted.items():
        error = value / getattr(used, name) - 1
        found |= {name: getattr(used, name), f"{name}_predicted": value, f"{name}_error": error}
        found[f"{name}_near"] = abs(error) <= WITHIN
    return found


def with_costs(experiment: Experiment, costs: Costs) -> Experiment:
    """Return an experiment whose programs all cost so much."""
    programs = tuple(replace(program, **asdict(costs)) for program in experiment.peer.programs)
    return replace(experiment, peer=replace(experiment.peer, programs=programs))


def _document(rows: Sequence[Row], results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    runs = [{**asdict(row.point), "verdict": row.verdict, "problem": row.problem, **_numbers(row.used)} for row in rows]
    return {"runs": runs, "implementations": results}


def _numbers(used: Used | None) -> dict[str, float]:
    """Return the numbers of a run that is used."""
    if used is None:
        return {}
    return {
        "copies_per_s": used.copies_per_s,
        "work_us": used.calibration.work_us,
        "peers": used.peers,
        "everything": used.everything,
        "memory_mib": used.memory_mib,
    }


def describe(rows: Sequence[Row], results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the runs, the lines for the files, and the comparisons."""
    yield "hosts  messages/s  copies/s  work us  peers    all  MiB/host  verdict  used as  implementation"
    for row in rows:
        use = "not" if row.used is None else "fitted" if row.point.fitted else "check"
        numbers = [f"{each:.2f}" for each in _numbers(row.used).values()] or ["-"] * 5
        cells = (row.point.hosts, f"{row.point.rate_per_s:g}", *numbers, row.verdict, use)
        widths = (5, 11, 9, 8, 6, 6, 9, 8, 8)
        line = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        yield f"{line}  {Path(row.point.implementation).stem}"
        if row.problem:
            yield f"       not used: {row.problem} ({row.place})"
    for name, result in results.items():
        yield ""
        yield f"# {find_implementation(name, 'NAME').path}"
        yield from (f"{key} = {_rounded(value)}" for key, value in result.get("costs", {}).items())
        if problem := result.get("problem"):
            yield f"# {problem}"
        for check in result.get("checks", ()):
            for what in ("peers", "everything", "memory_mib"):
                measured, predicted = (f"{check[key]:.3g}" for key in (what, f"{what}_predicted"))
                near = "" if check[f"{what}_near"] else f", more than {WITHIN:.0%}"
                yield f"# {what}: {predicted} predicted, {measured} measured: {check[f'{what}_error']:+.0%}{near}"


def _rounded(value: float) -> str:
    """Return a cost with three digits, as a number of TOML."""
    return f"{float(f'{value:.3g}'):g}"


if __name__ == "__main__":
    sys.exit(main())
