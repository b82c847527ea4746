"""Writes the report of a run."""

import shutil

from metrics.report.figures.registry import FIGURES
from metrics.report.page import render
from metrics.report.run import Run
from metrics.report.svg import to_svg
from metrics.rundir import write_file
from metrics.rundir.files import REPORT_FOLDER, REPORT_PAGE
from metrics.storage import Place, StorePath


def write(run_dir: Place, results: Place | None = None) -> Place:
    """Draw the figures of an analysed run and write its page; an older report is removed.

    Args:
        run_dir: a run directory with tables and ``summary.json``.
        results: the folder in which these are, and in which the report is made; None = the run directory.

    Returns:
        The path of ``report/index.html``.

    Raises:
        RunDirError: the run has not been analysed, or cannot be read.
    """
    run = Run(run_dir, results)
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
    write_file(page, render(run, drawn).encode())
    return page
