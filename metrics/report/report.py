"""Writes the report of a run."""

import shutil
from collections.abc import Sequence

from metrics.report.baseline import find_baseline
from metrics.report.figures.registry import FIGURES
from metrics.report.page import render
from metrics.report.replay import choose_messages, render_replay
from metrics.report.run import Run
from metrics.report.slow import SlowRow, list_slow
from metrics.report.spread import read_spreads
from metrics.report.svg import to_svg
from metrics.rundir import write_file
from metrics.rundir.files import REPLAY_PAGE, REPORT_FOLDER, REPORT_PAGE
from metrics.storage import Place, StorePath


def write(run_dir: Place, results: Place | None = None, baseline: Place | None = None) -> Place:
    """Draw the figures of an analysed run and write its page and its replay; an older report is removed.

    Args:
        run_dir: a run directory with tables and ``summary.json``.
        results: the folder in which these are, and in which the report is made; None = the run directory.
        baseline: the directory of the run to compare with; None = the one that ``find_baseline`` finds, if any.

    Returns:
        The path of ``report/index.html``.

    Raises:
        RunDirError: the run or the baseline has not been analysed, or cannot be read.
    """
    run = Run(run_dir, results)
    other = find_baseline(run, baseline)
    drawn: dict[str, tuple[str, str]] = {}
    folder = run.results / REPORT_FOLDER
    if not isinstance(folder, StorePath):
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for figure in FIGURES:
        drawing = figure.draw(run)
        if drawing is None:
            continue
        svg = to_svg(drawing.canvas)
        write_file(folder / f"{figure.name}.svg", svg.encode())
        drawn[figure.name] = svg, drawing.seen
    page = run.results / REPORT_PAGE
    write_file(page, render(run, drawn, _write_replay(run), other).encode())
    return page


def _write_replay(run: Run) -> Sequence[SlowRow]:
    """Write the replay of the run's slowest deliveries, and return the rows of these; none without a delivery."""
    reasons = choose_messages(run)
    spreads = read_spreads(run, list(reasons))
    if spreads:
        page = render_replay(run, spreads, reasons, report=(run.results / REPORT_PAGE).name)
        write_file(run.results / REPLAY_PAGE, page.encode())
    return list_slow(run, spreads)
