"""``trellis run``: run an experiment, analyse the run and print the verdict."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from harness.commands.check import add_experiment_arguments, add_testbed_argument, overrides_of
from harness.doctor.collisions import current_collisions
from harness.errors import ExperimentError, TrellisError, UsageError
from harness.experiment.inventory import Machine, load_inventory, save_inventory
from harness.experiment.loader import load_experiment
from harness.interpreter import python_command
from harness.interruption import run_stage
from harness.live.opening import live_page, require_extra, require_processes
from harness.machine import sandbox
from harness.planning import make_plan, remarks_on, write_plan
from harness.planning.plan import PlannedRun
from harness.planning.processors import Outlook, foresee_here
from harness.progress import step
from harness.stages import manifest
from harness.stages.analysis import (
    EXIT_CODES,
    AnalysisError,
    UnreadableRunError,
    add_master_arguments,
    executor_options,
    remark_on_java,
)
from harness.stages.prepared import STOPPED, Prepared, prepared
from harness.stages.repetition import is_spoiled_by_host, next_attempt
from harness.terminal import say, say_json
from harness.testbeds.emulated.work_folder import remove_work_folder
from harness.testbeds.registry import TESTBEDS, find_lack
from metrics.rundir import JUDGED, NOT_APPLICABLE, NOT_JUDGED, Attempt, RunDir, Scope, Summary, write_document
from metrics.rundir.files import ATTEMPT_FILE, MANIFEST_FILE, REPORT_PAGE, RESERVE_FILE, SUMMARY_FILE
from metrics.storage import Place, local_path

RUNS = Path("runs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment_arguments(parser)
    add_testbed_argument(parser)
    parser.add_argument(
        "--on",
        metavar="INVENTORY[:MACHINE]",
        help="run the testbed on a machine of an inventory (default: its first one), and analyse the run here",
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="R", help="make R runs with seeds N, N+1, ...")
    parser.add_argument(
        "--retry-host-stalls",
        type=int,
        default=0,
        metavar="N",
        help="repeat a run up to N times if only stalls of the host keep it from being valid (default 0)",
    )
    parser.add_argument("--live", action="store_true", help="show the run in a browser: print the address of a page")
    parser.add_argument("--out", type=local_path, metavar="DIR", help="the run directory; it must not exist")
    add_master_arguments(parser)
    parser.add_argument(
        "--no-report",
        dest="page",
        action="store_false",
        help="compute tables and verdict, but draw no figures and write no page: trellis report RUN does that later",
    )
    parser.add_argument("--all", action="store_true", help="print all headline numbers, not only ten")
    parser.add_argument("--json", action="store_true", help="print the summaries as JSON, one line per run")


def run(arguments: argparse.Namespace) -> int:
    """Run the experiment once for each seed.

    Returns:
        The exit code of the worst verdict among each seed's last attempt: invalid, then suspect, then valid. The exit
        code of the running stage if it failed; later seeds are not run.
    """
    if arguments.repeat < 1:
        raise ExperimentError("--repeat", f"expected at least 1, got {arguments.repeat}")
    if arguments.out and arguments.repeat > 1:
        raise ExperimentError("--out", "names the directory of one run, but --repeat asks for several runs")
    if arguments.retry_host_stalls < 0:
        raise ExperimentError("--retry-host-stalls", f"expected at least 0, got {arguments.retry_host_stalls}")
    if arguments.live:
        require_extra("--live")
        if arguments.on:
            raise UsageError("--live shows runs of this machine, not those of --on; see docs/live.md")
    if collisions := current_collisions():
        raise ExperimentError("import names", "; ".join(collisions))
    options = executor_options(arguments)
    remark_on_java(arguments.master)
    overrides = overrides_of(arguments)
    asked = load_experiment(arguments.file, overrides, arguments.seed)
    if arguments.live:
        require_processes("--live", asked.testbed)
    machine = find_machine(arguments.on, asked.testbed) if arguments.on else None
    verdicts = []
    remarked: set[str] = set()

    def plan(seed: int) -> PlannedRun:
        planned = _plan(arguments.file, overrides, seed, here=machine is None)
        print_remarks(planned, remarked, here=machine is None)
        return planned

    @contextlib.contextmanager
    def begin(run_dir: Path) -> Iterator[Prepared]:
        shown: AbstractContextManager[None] = _showing(run_dir) if arguments.live else contextlib.nullcontext()
        with shown, prepared(run_dir, arguments.master, options, page=arguments.page) as analysis:
            yield analysis

    def perform(run_dir: Path, analysis: Prepared) -> int:
        return _perform(asked.testbed, run_dir, machine, analysis)

    for seed in range(asked.seed, asked.seed + arguments.repeat):
        making = Making(partial(plan, seed), begin, perform, arguments.page)
        try:
            for run_dir, summary in make_attempts(making, arguments.out, arguments.retry_host_stalls):
                print_outcome(run_dir, summary, as_json=arguments.json, all_numbers=arguments.all)
        except StageError as failed:
            return failed.status  # the running stage has printed the reason
        verdicts.append(summary.verdict)
    return EXIT_CODES[max(verdicts, key=["valid", "suspect", "invalid"].index)]


class StageError(TrellisError):
    """The running stage failed, and has printed the reason. ``status``: its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the run ended with status {status}")
        self.status = status


class Making(NamedTuple):
    """How a run is made.

    Attributes:
        plan: makes its plan.
        begin: begins its analysis, in its directory.
        perform: performs it, and returns the status of the running stage.
        page: whether the analysis writes a report.
    """

    plan: Callable[[], PlannedRun]
    begin: Callable[[Path], AbstractContextManager[Prepared]]
    perform: Callable[[Path, Prepared], int]
    page: bool


def make_attempts(making: Making, out: Path | None, retries: int) -> Iterator[tuple[Path, Summary]]:
    """Make a run, and repeat it while only stalls of the host keep it from being valid.

    Args:
        making: how.
        out: the directory of the first attempt; None = a free one below ``RUNS``.
        retries: the most repetitions.

    Yields:
        The directory and the summary of each attempt; the last one counts.

    Raises:
        StageError: the running stage failed.
    """
    attempt: Attempt | None = None
    while True:
        run_dir = _make_run_dir(making.plan(), out, attempt)
        with _saying_what_is_left(run_dir), making.begin(run_dir) as analysis:
            if status := making.perform(run_dir, analysis):
                raise StageError(status)
            with step("tables and report" if making.page else "tables"):
                summary = analysis.finish()
        yield run_dir, summary
        attempt = next_attempt(run_dir, summary)
        if attempt.attempt > 1 + retries or not is_spoiled_by_host(summary):
            return
        print(f"stalls of the host explain every reason: attempt {attempt.attempt} follows", file=sys.stderr)


@contextlib.contextmanager
def _showing(run_dir: Path) -> Iterator[None]:
    """Serve the live page of the run as long as it lasts, and print its address."""
    with live_page(run_dir, stays=True, loads_first=True) as page:
        print(f"live: {page.address}", file=sys.stderr, flush=True)
        yield


def find_machine(text: str, testbed: str) -> Machine:
    """Return the machine that ``--on`` names.

    Args:
        text: INVENTORY or INVENTORY:MACHINE.
        testbed: of the experiment.

    Raises:
        ExperimentError: there is no such machine, or the testbed has machines of its own.
    """
    if find_lack(testbed, "inventory") is None:
        problem = f'testbed = "{testbed}" runs on the machines of the experiment\'s own inventory'
        raise ExperimentError("--on", f"{problem}; leave --on out, or add --testbed emulated")
    path, colon, name = text.rpartition(":") if not Path(text).exists() else (text, "", "")
    if not Path(path or text).exists():
        raise ExperimentError("--on", f"expected INVENTORY or INVENTORY:MACHINE, and there is no file {path or text}")
    machines = load_inventory(Path(path or text)).machines
    chosen = [machine for machine in machines if machine.name == name or not colon]
    if not chosen:
        names = ", ".join(machine.name for machine in machines)
        raise ExperimentError("--on", f"{path} has no machine {name}; it has {names}")
    return chosen[0]


def _plan(file: Path, overrides: list[str], seed: int, *, here: bool) -> PlannedRun:
    experiment = load_experiment(file, overrides, seed)
    with step("plan"):
        return make_plan(experiment, file, overrides, here=here)


def print_remarks(planned: PlannedRun, printed: set[str], *, here: bool) -> None:
    """Print the remarks on a plan that no earlier seed had; ``here``: whether the run is made on this machine."""
    plan = planned.plan
    outlook = foresee_here(plan.experiment, plan.prediction, len(plan.placement)) if here else None
    for remark in remarks_on(planned, outlook if isinstance(outlook, Outlook) else None):
        if remark not in printed:
            printed.add(remark)
            print(f"remark: {remark}", file=sys.stderr)


def _make_run_dir(planned: PlannedRun, out: Path | None, attempt: Attempt | None) -> Path:
    """Make the run's directory and write its plan. ``attempt``: None = the first attempt."""
    experiment = planned.plan.experiment
    out = out.with_name(f"{out.name}-attempt{attempt.attempt}") if out and attempt else out
    run_dir = (out or free_run_dir(experiment.name, experiment.seed)).absolute()
    if run_dir.exists():
        raise ExperimentError(str(run_dir), "exists already; name a new directory")
    with _saying_what_is_left(run_dir):
        write_plan(planned, run_dir)
        if attempt:
            write_document(run_dir / ATTEMPT_FILE, attempt)
        if experiment.inventory:
            save_inventory(load_inventory(planned.source.parent / experiment.inventory), run_dir)
    return run_dir


def free_run_dir(name: str, seed: int) -> Path:
    """Return ``runs/<name>/<UTC time>-seed<N>``, with a number appended if that path exists."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    first = RUNS / name / f"{now}-seed{seed}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(free for free in chain([first], others) if not free.exists())


def _perform(testbed: str, run_dir: Path, machine: Machine | None, analysis: Prepared) -> int:
    """Run the running stage here, or on a machine; return its status."""
    if machine is None:
        return perform_stage(testbed, run_dir, analysis.stopped)
    from harness.deployment.errand import run_there  # its libraries for SSH take long to import

    def show(line: str) -> None:
        print(f"{machine.name}: {line}", file=sys.stderr, flush=True)

    status = run_there(machine, run_dir, show)
    if not status:
        name_machine(run_dir, machine.name)
    return status


def name_machine(run_dir: Path, name: str) -> None:
    """Add what the machine, which wrote the manifest, does not know: its name, the run's, and the code's revision."""
    run = RunDir(run_dir)
    known = replace(
        run.manifest,
        run_id=manifest.run_id(run.plan.name, run_dir),
        deployment={**run.manifest.deployment, "machine": name},
        versions={**run.manifest.versions, **manifest.revision()},
    )
    manifest.write(run_dir, known)


def perform_stage(testbed: str, run_dir: Path, stopped: int | None = None) -> int:
    """Run the running stage as a process, in a sandbox if the testbed needs one, and return its status.

    Args:
        testbed: its name.
        run_dir: the planned run.
        stopped: the descriptor of ``STOPPED``, for a stage in a sandbox: others need not be alone on this machine.
    """
    argv = python_command("-m", "harness.stages.execution", str(run_dir))
    try:
        if TESTBEDS[testbed].sandboxed:
            given = {} if stopped is None else {STOPPED: str(stopped)}
            descriptors = [] if stopped is None else [stopped]
            return sandbox.run(argv, keep=[run_dir], environment=given, descriptors=descriptors)
        return run_stage(argv)
    finally:  # a stage that was killed could not do this itself
        (run_dir / RESERVE_FILE).unlink(missing_ok=True)
        remove_work_folder(run_dir)


@contextlib.contextmanager
def _saying_what_is_left(run_dir: Path) -> Iterator[None]:
    """Add to an interrupt, and to the error of a failed analysis, what remains of the run."""
    is_complete = f"{run_dir} is complete but not analysed; try: trellis report {run_dir}"
    try:
        yield
    except UnreadableRunError:  # another analysis would find the same
        raise
    except AnalysisError as error:
        if (run_dir / MANIFEST_FILE).exists():
            raise AnalysisError(f"{error}; {is_complete}") from None
        raise
    except KeyboardInterrupt as interrupt:
        if (run_dir / MANIFEST_FILE).exists():
            interrupt.add_note(is_complete)
        elif run_dir.exists():
            interrupt.add_note(f"{run_dir} has no {MANIFEST_FILE}, so it cannot be analysed")
        raise


def print_outcome(run_dir: Place, summary: Summary, *, as_json: bool, all_numbers: bool = False) -> None:
    """Print the verdict, its reasons, headline numbers and the path of the report.

    Args:
        run_dir: the run.
        summary: its summary.
        as_json: print the summary as JSON instead, which has all numbers.
        all_numbers: print all headline numbers instead of those of ``FIRST_NUMBERS``.
    """
    if as_json:
        say_json({"run_dir": str(run_dir), **msgspec.to_builtins(summary)})
        return
    said = [""]
    if summary.attempt:
        said += [f"attempt {summary.attempt.attempt}, a repetition of {summary.attempt.repeats}"]
    if machine := RunDir(run_dir).manifest.machine:
        said += [f"machine: {machine}"]
    said += [f"verdict: {summary.verdict} ({describe_scope(summary.scope)})"]
    said += [f"  - {reason}" for reason in summary.reasons]
    from metrics.measures.registry import FIRST_NUMBERS

    known = {name: value for name, value in summary.headline.items() if value is not None}
    shown = [name for name in (known if all_numbers else FIRST_NUMBERS) if name in known]
    said += [f"{name:>32}  {_number(known[name])}" for name in shown]
    if len(shown) < len(known):
        said += [f"{len(known) - len(shown)} more numbers: {run_dir / SUMMARY_FILE}, the report, or --all"]
    if summary.computed_by:
        said += [f"tables: computed {summary.computed_by}"]
    page = RunDir(run_dir).results / REPORT_PAGE
    say(*said, f"report: {page}" if page.exists() else f"no report: trellis report {run_dir} writes it")


def describe_scope(scope: Scope | None) -> str:
    """Return which parts of the run the verdict is about, and which were not judged or do not apply."""
    if scope is None:
        return "an earlier version did not record what it judged"
    parts: dict[str, list[str]] = {JUDGED: [], NOT_JUDGED: [], NOT_APPLICABLE: []}
    for part, state in msgspec.structs.asdict(scope).items():
        parts[state].append(part)
    return "; ".join(f"{state}: {', '.join(names)}" for state, names in parts.items() if names)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
