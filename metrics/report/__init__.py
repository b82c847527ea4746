"""The report of a run: figures as PNG, and one HTML page that opens without a network."""

import base64
from pathlib import Path

from metrics.replacement import replacing
from metrics.report.figures import FIGURES
from metrics.report.page import render
from metrics.report.run import Run
from metrics.rundir.files import REPORT_FOLDER, REPORT_PAGE

__all__ = ["Run", "write"]


def write(run_dir: Path) -> Path:
    """Draw the figures of an analysed run and write its page; an older report is replaced when all is there.

    Args:
        run_dir: a run directory with tables and ``summary.json``.

    Returns:
        The path of ``report/index.html``.

    Raises:
        RunDirError: the run has not been analysed, or cannot be read.
    """
    run = Run(run_dir)
    drawn: list[dict[str, str]] = []
    missing: list[str] = []
    with replacing(run_dir, REPORT_FOLDER) as folder:
        for figure in FIGURES:
            canvas = figure.draw(run)
            if canvas is None:
                missing.append(figure.title)
                continue
            path = folder / f"{figure.name}.png"
            canvas.savefig(path, dpi=144)
            encoded = base64.b64encode(path.read_bytes()).decode()
            drawn.append({"name": figure.name, "title": figure.title, "caption": figure.caption, "png": encoded})
        (folder / Path(REPORT_PAGE).name).write_text(render(run, drawn, missing), encoding="utf-8")
    return run_dir / REPORT_PAGE
