"""``trellis compare RUN RUN...``: compare groups of runs, with intervals."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from harness.errors import ExperimentError
from harness.terminal import printable, say
from metrics.rundir.files import MANIFEST_FILE, PLAN_FILE
from metrics.storage import Place, place

if TYPE_CHECKING:
    from metrics.comparison.conditions import Condition, Outcome
    from metrics.comparison.differences import Cell, Comparison
    from metrics.comparison.groups import Group
    from metrics.report.run import Run

UNBOUNDED = 10_000
"""Columns of output that does not go to a terminal."""

UNDECIDED, FAILED = 3, 4
"""Exit statuses: a condition of ``--fail-if`` could be neither confirmed nor rejected; one is met."""


Replaced: TypeAlias = "dict[tuple[Place, str], Place]"
"""The later attempt by the folder and the name of the run that it replaced."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=place, metavar="RUN", help="directories of analysed runs, or their URIs (s3://...)"
    )
    parser.add_argument(
        "--baseline", metavar="GROUP", help="the group that others are compared with: its label, or one of its runs"
    )
    parser.add_argument(
        "--measure", action="append", metavar="NAME", help="show this measure only (several allowed), judged together"
    )
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help=f"exit with {FAILED} if the runs show that a difference is beyond a bound, with 0 if they show that it is "
        f"not, otherwise with {UNDECIDED}: 'propagation_delay_ms_p99 > +5%%', 'delivery_ratio < -0.01' (several "
        "allowed)",
    )
    parser.add_argument(
        "--by-folder", action="store_true", help="group runs by their folders, not by what differs in their experiments"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write a table for a comment")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write a row per measure and group")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison, write the files asked for, and judge the conditions."""
    from metrics.comparison.conditions import judge
    from metrics.comparison.differences import compare
    from metrics.comparison.documents import to_csv, to_json
    from metrics.comparison.groups import group_runs
    from metrics.report.run import Run

    conditions, names = _conditions(arguments.fail_if), _measures(arguments.measure)
    finished = [path for path in arguments.runs if _is_finished(path)]
    runs, replaced = _last_attempts([Run(path) for path in finished or arguments.runs])
    groups = group_runs(runs, by_folder=arguments.by_folder)
    if conditions and len(groups) < 2:
        raise ExperimentError("--fail-if", "all runs are of one group, so that there is no difference to judge")
    if names is not None:
        names = list(dict.fromkeys([*names, *(condition.measure for condition in conditions)]))
    comparison = compare(groups, _baseline(arguments.baseline, groups, replaced), names)
    outcomes = judge(conditions, comparison) if conditions else []
    _print(comparison)
    if arguments.html is not None:
        from metrics.report.comparison import render_comparison

        _write(arguments.html, render_comparison(comparison, outcomes).encode())
    if arguments.markdown is not None:
        from metrics.report.comparison import to_markdown

        _write(arguments.markdown, to_markdown(comparison, outcomes).encode())
    if arguments.csv is not None:
        _write(arguments.csv, to_csv(comparison).encode())
    if arguments.json is not None:
        _write(arguments.json, to_json(comparison, outcomes))
    return _conclude(outcomes, comparison)


def _conditions(texts: list[str]) -> "list[Condition]":
    from metrics.comparison.conditions import ConditionError, parse_condition

    try:
        return [parse_condition(text) for text in texts]
    except ConditionError as error:
        raise ExperimentError("--fail-if", str(error)) from None


def _measures(names: list[str] | None) -> list[str] | None:
    from metrics.comparison.conditions import ConditionError, check_measure

    try:
        for name in names or ():
            check_measure(name)
    except ConditionError as error:
        raise ExperimentError("--measure", str(error)) from None
    return names


def _baseline(text: str | None, groups: "list[Group]", replaced: "Replaced") -> int:
    """Return the place of the group with this label or run; the first one if nothing is asked.

    Raises:
        ExperimentError: there is no such group, or a later attempt replaced the run.
    """
    if text is None:
        return 0
    for number, group in enumerate(groups):
        if text == group.label or place(text).resolve() in [run.path.resolve() for run in group.runs]:
            return number
    if (later := _find_last(place(text), replaced)) is not None:
        problem = f"stalls of the host spoiled {text}, and the attempt {later} replaced it; name that one"
        raise ExperimentError("--baseline", problem)
    raise ExperimentError("--baseline", f"no group has the label or the run '{text}'; the groups: {_names(groups)}")


def _find_last(run: Place, replaced: "Replaced") -> Place | None:
    """Return the last attempt that replaced a run, None if there is none."""
    found, where, others = None, run.resolve(), dict(replaced)
    while later := others.pop((where.parent, where.name), None):  # used once: damaged runs may repeat each other
        found, where = later, later.resolve()
    return found


def _names(groups: "list[Group]") -> str:
    return ", ".join(f"'{group.label}'" for group in groups)


def _is_finished(path: Place) -> bool:
    """Return whether a run finished. If it did not, report on stderr that it is left out."""
    if not (path / PLAN_FILE).exists() or (path / MANIFEST_FILE).exists():
        return True
    say(f"left out: {path}: the run did not finish", file=sys.stderr)
    return False


def _last_attempts(runs: "list[Run]") -> "tuple[list[Run], Replaced]":
    """Return the runs that no other run repeats, and what replaced the others, which are reported on stderr.

    ``trellis run --retry-host-stalls`` repeats a run with the same seed, so the two are no two samples. They may have
    been moved together since.
    """
    places = [(path.parent, path.name) for path in (run.path.resolve() for run in runs)]
    replaced: Replaced = {}
    for run, (folder, _) in zip(runs, places, strict=True):
        if attempt := run.summary.attempt:
            replaced[folder, Path(attempt.repeats).name] = run.path
    if replaced.keys() >= set(places):  # no run would be left, as if each repeated another one
        return runs, {}
    for run, where in zip(runs, places, strict=True):
        if where in replaced:
            say(f"left out: {run.path}: a later attempt repeats it", file=sys.stderr)
    return [run for run, where in zip(runs, places, strict=True) if where not in replaced], replaced


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ExperimentError(str(path), error.strerror or str(error)) from None
    say(f"written: {path}")


def _conclude(outcomes: "list[Outcome]", comparison: "Comparison") -> int:
    """Print how the conditions came out, and return the exit status."""
    for each in outcomes:
        say(f"{each.state}: {each.condition}: {each.group}: {each.words}")
    invalid = [run.path for group in comparison.groups for run in group.runs if run.summary.verdict == "invalid"]
    for path in invalid:
        say(f"invalid run: {path}: its numbers are not to be trusted", file=sys.stderr)
    states = {each.state for each in outcomes}
    if "met" in states:
        return FAILED
    return UNDECIDED if "undecided" in states or (outcomes and invalid) else 0


def _print(comparison: "Comparison") -> None:
    from rich.console import Console
    from rich.table import Table

    from metrics.report.comparison import setting_rows
    from metrics.report.values import format_number

    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for group in comparison.groups:
        table.add_column(printable(group.label), justify="right", overflow="fold", min_width=8)
    for name, values in setting_rows(comparison):
        table.add_row(*map(printable, (name, *map(format_number, values))), style="bold")
    for row in comparison.rows:
        base = row.cells[comparison.baseline].estimate
        cells = ("\n".join(_lines(cell, None if base is None else base.value)) for cell in row.cells)
        table.add_row(printable(row.name), *cells)
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = UNBOUNDED
    console.print(table)
    for group, names in comparison.real:
        console.print(printable(f"{group.label} differs by more than noise in: {', '.join(names) or 'nothing'}"))
    for note in comparison.notes:
        console.print(printable(note), style="dim")


def _lines(cell: "Cell", base: float | None) -> list[str]:
    from metrics.report.comparison import describe_cell

    return [line for line in describe_cell(cell, base) if line]
