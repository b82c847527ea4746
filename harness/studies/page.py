"""Writes the output of a sweep: results, tables, figures, and one HTML page that opens without a network."""

from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from harness.studies.claims import HEAD, Finding, by_source, judge, show_finding, write_findings
from harness.studies.code_hash import code_of
from harness.studies.figures import draw_figure
from harness.studies.measures import MEASURES
from harness.studies.points import axes_of, points_of, seeds_of
from harness.studies.results import aggregate, means_table, runs_table
from harness.studies.store import Result, SweepSpec
from harness.studies.tables import Table, make_table, show_entry, write_csv, write_markdown
from metrics.report.palette import palette_css
from metrics.report.svg import to_element, to_svg
from metrics.rundir import write_file

CLAIMS_FILE = "claims.md"


def write_page(folder: Path, spec: SweepSpec, results: Sequence[Result]) -> Path:
    """Write the output of a finished sweep.

    Args:
        folder: the folder of the sweep.
        spec: its specification.
        results: the results of all its runs, in the order of the study.

    Returns:
        The path of ``index.html``.
    """
    axes = [axis.name for axis in axes_of(spec.study)]
    means = means_table(list(aggregate(results)), axes)
    write_file(folder / "results.parquet", _in_memory(partial(pyarrow.parquet.write_table, means)))
    write_file(folder / "results.csv", _in_memory(partial(pyarrow.csv.write_csv, means)))
    runs = runs_table(results, axes)
    write_file(folder / "runs.parquet", _in_memory(partial(pyarrow.parquet.write_table, runs)))
    tables = [make_table(table, results) for table in spec.study.table]
    for table in tables:
        write_file(folder / f"{table.spec.name}.md", write_markdown(table).encode())
        write_file(folder / f"{table.spec.name}.csv", write_csv(table).encode())
    findings = [judge(claim, results) for claim in spec.study.claim]
    if findings:
        parts = [f"**{title}**\n\n{write_findings(found)}\n" for title, found in by_source(findings)]
        write_file(folder / CLAIMS_FILE, "\n".join(parts).encode())
    page = folder / "index.html"
    write_file(page, _render(spec, results, tables, findings, _draw(folder, spec, results)).encode())
    return page


def _in_memory(write: Callable[[BytesIO], object]) -> bytes:
    """Return what something writes to a file."""
    file = BytesIO()
    write(file)
    return file.getvalue()


def _draw(folder: Path, spec: SweepSpec, results: Sequence[Result]) -> list[dict[str, str]]:
    """Write every figure as PNG, and return it as SVG for the page."""
    drawn = []
    for figure in spec.study.figure:
        canvas = draw_figure(figure, results)
        write_file(folder / f"{figure.name}.png", _in_memory(partial(canvas.savefig, dpi=144)))
        element = to_element(to_svg(canvas), figure.name, figure.title)
        drawn.append({"name": figure.name, "title": figure.title, "note": figure.note, "svg": element})
    return drawn


def _render(
    spec: SweepSpec,
    results: Sequence[Result],
    tables: Sequence[Table],
    findings: Sequence[Finding],
    figures: list[dict[str, str]],
) -> str:
    loader = ChoiceLoader([PackageLoader("harness.studies", "."), PackageLoader("metrics.report", ".")])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.globals["show_entry"] = show_entry
    study = spec.study
    return environment.get_template("page.html.j2").render(
        study=study,
        quick="--quick" in spec.options,
        tables=tables,
        claims=[(title, [HEAD, *map(show_finding, found)]) for title, found in by_source(findings)],
        figures=figures,
        palette=palette_css(),
        measures=[MEASURES[name] for name in study.measures],
        provenance=_provenance(spec, results),
    )


def _provenance(spec: SweepSpec, results: Sequence[Result]) -> dict[str, Any]:
    cpu_s = {result.key: result.cpu_s for result in results}
    known = {code_of([point.experiment], spec.study.measures) for point in points_of(spec.study)}
    stale = sorted({result.code for result in results} - known)
    return {
        "study file": spec.source,
        "options": " ".join(spec.options) or "none",
        "points": len({tuple(result.at.items()) for result in results}),
        "seeds": ", ".join(map(str, seeds_of(spec.study))),
        "processor time": f"{sum(cpu_s.values()):.0f} s in {len(cpu_s)} runs, "
        f"the longest {max(cpu_s.values()):.1f} s, "
        f"the largest process {max(result.peak_mib for result in results)} MiB",
        "code": spec.code + (f"; some runs are of other versions: {', '.join(stale)}" if stale else ""),
        **spec.versions,
    }
