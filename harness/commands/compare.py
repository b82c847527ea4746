"""``trellis compare RUN RUN...``: print runs side by side."""

import argparse
import sys
from pathlib import Path

import msgspec

from harness.errors import ExperimentError
from metrics.rundir.files import MANIFEST_FILE, PLAN_FILE

UNBOUNDED = 10_000
"""Columns of output that does not go to a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of analysed runs")
    parser.add_argument("--out", type=Path, help="also write an HTML page to this path")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the runs side by side, and write the page if ``--out`` names it."""
    from metrics.report import Run
    from metrics.report.comparison import differing_settings, headline_rows, labels, write_comparison

    finished = [path for path in arguments.runs if _is_finished(path)]
    runs = [Run(path) for path in finished or arguments.runs]
    if arguments.json:
        document = [{"run_dir": str(run.path), **msgspec.to_builtins(run.summary)} for run in runs]
        print(msgspec.json.encode(document).decode())
    else:
        verdicts = [("verdict", [run.summary.verdict for run in runs])]
        _print(labels(runs), verdicts + differing_settings(runs), headline_rows(runs))
    if arguments.out is not None:
        try:
            write_comparison(runs, arguments.out)
        except OSError as error:
            raise ExperimentError(str(arguments.out), error.strerror or str(error)) from None
        print(f"page: {arguments.out}")
    return 0


def _is_finished(path: Path) -> bool:
    """Whether a run finished. If it did not, say on stderr that it is left out."""
    if not (path / PLAN_FILE).is_file() or (path / MANIFEST_FILE).is_file():
        return True
    print(f"left out: {path}: the run did not finish", file=sys.stderr)
    return False


def _print(titles: list[str], settings: list[tuple[str, list[object]]], rows: list[tuple[str, list[object]]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from metrics.report.page import format_number

    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", overflow="fold", min_width=8)
    for name, values in settings:
        table.add_row(name, *map(format_number, values), style="bold")
    for name, values in rows:
        table.add_row(name, *("-" if value is None else format_number(value) for value in values))
    console = Console()
    if not console.is_terminal:
        console.width = UNBOUNDED
    console.print(table)
