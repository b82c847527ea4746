"""Makes the report's page: one HTML file that opens without a network."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape
from msgspec import structs

from metrics.measures.measure import Measure
from metrics.measures.registry import MEASURES, find_measure
from metrics.report.baseline import UNKNOWN, contrast, describe_baseline, name_sides
from metrics.report.figures.chapter import Chapter
from metrics.report.figures.registry import CHAPTERS
from metrics.report.findings import advise, find_quiet, find_striking
from metrics.report.groups import expressions_by_use, sharing_of_links
from metrics.report.overlay import measures_over_time, topics_by_shape
from metrics.report.palette import palette_css
from metrics.report.probing import first_packet_rows, round_trip_rows, sweep_rows
from metrics.report.run import Run
from metrics.report.slow import SlowRow
from metrics.report.svg import to_element
from metrics.report.values import format_number, format_value, join_words
from metrics.reported import name_implementations, reports_nothing
from metrics.rundir import FAILED, JUDGED, NOT_APPLICABLE, NOT_JUDGED, PASSED, RunDir, Summary
from metrics.rundir.files import ACHIEVED_FILE, TABLES_FOLDER
from metrics.storage import Place
from metrics.storage.parquet import read_footer
from peer.protocols.registry import PROTOCOLS


def render(
    run: Run, drawn: Mapping[str, tuple[str, str]], slow: Sequence[SlowRow] = (), baseline: RunDir | None = None
) -> str:
    """Return the page of a run.

    Args:
        run: the analysed run.
        drawn: SVG and a sentence about it, by the name of the figure; figures without anything to show are left out.
        slow: the slowest deliveries, slowest first.
        baseline: the run whose numbers stand beside this run's; None = there is none.
    """
    summary = run.summary
    return template("page.html.j2").render(
        run=run,
        summary=summary,
        sentence=sentence(run),
        reading=reading(run),
        expectation=expectation(run),
        judged=judged(summary),
        closest=closest(summary),
        striking=find_striking(run, slow),
        quiet=find_quiet(run),
        advice=advise(run, baseline),
        slow=slow,
        baseline=None if baseline is None else describe_baseline(baseline),
        sides=None if baseline is None else name_sides(run, baseline),
        contrasts=[] if baseline is None else contrast(run, baseline),
        inapplicable=inapplicable(summary),
        chapters=[_chapter(run, chapter, drawn, baseline) for chapter in CHAPTERS],
        palette=palette_css(),
        overlay=measures_over_time(run),
        topics=topics_by_shape(run),
        expressions=expressions_by_use(run),
        sharing=sharing_of_links(run),
        round_trips=round_trip_rows(run),
        sweeps=sweep_rows(run),
        first_packets=first_packet_rows(run),
        tables=table_files(run),
        provenance=run.provenance(),
    )


def _chapter(
    run: Run, chapter: Chapter, drawn: Mapping[str, tuple[str, str]], baseline: RunDir | None
) -> dict[str, Any]:
    """Return a chapter for the template."""
    others: Mapping[str, Any] = {} if baseline is None else baseline.summary.headline
    values = [(MEASURES[name], run.summary.headline.get(name)) for name in chapter.numbers]
    return {
        "name": chapter.name,
        "title": chapter.title,
        "numbers": [
            (measure.text, format_value(measure, value), _show(measure, others.get(name)))
            for name, (measure, value) in zip(chapter.numbers, values, strict=True)
            if value is not None
        ],
        "figures": [
            {"figure": figure, "seen": seen, "svg": to_element(svg, figure.name, f"{figure.title}. {seen}")}
            for figure in chapter.figures
            if figure.name in drawn
            for svg, seen in [drawn[figure.name]]
        ],
        "missing": [figure.title for figure in chapter.figures if figure.name not in drawn],
    }


def _show(measure: Measure[Any], value: float | None) -> str:
    return UNKNOWN if value is None else format_value(measure, value)


def table_files(run: Run) -> dict[str, dict[str, Any]]:
    """Return where the tables of the figures are, from the page: ``href``, rows and bytes, by their names.

    A table of one part leads to the file, any other table to the folder.
    """
    files: dict[str, dict[str, Any]] = {}
    for folder in run.list_tables():
        parts: list[Place] = list(folder.glob("*.parquet"))
        files[folder.stem] = {
            "href": f"../{TABLES_FOLDER}/{folder.name}/{parts[0].name if len(parts) == 1 else ''}",
            "rows": sum(read_footer(part).num_rows for part in parts),
            "bytes": sum(part.stat().st_size for part in parts),
        }
    probes = run.path / ACHIEVED_FILE
    if probes.exists():
        size = {"rows": read_footer(probes).num_rows, "bytes": probes.stat().st_size}
        files[probes.stem] = {"href": f"../{ACHIEVED_FILE}"} | size
    return files


def template(name: str) -> Template:
    """Return a page's template, with the filters ``number``, ``label`` and ``breakable``. What it shows is escaped."""
    environment = Environment(loader=PackageLoader("metrics.report", "."), autoescape=True, undefined=StrictUndefined)
    environment.filters.update(number=format_number, label=label_of, breakable=breakable)
    return environment.get_template(name)


def sentence(run: Run) -> str:
    """Return the run in one sentence: what ran where, for how long."""
    experiment = run.experiment
    peers, sites = len(run.nodes), run.hosts["site"].nunique()
    places = f"in {sites} cities" if run.has_map else f"on {sites} sites"
    messages = run.summary.headline.get("messages_published")
    published = "" if messages is None else f", {messages:,} messages published in {run.duration_s:g} s"
    dilation = run.manifest.time_dilation
    machine = f" on {run.manifest.machine}" if run.manifest.machine else ""
    shared = f", up to {run.manifest.per_process} peers per process" if run.manifest.per_process > 1 else ""
    slowly = "" if dilation == 1 else f", {dilation:g} times slower than reported"
    programs = name_implementations(experiment, versions=True)
    protocol = f"{experiment['protocol']} by {programs}" if programs else experiment["protocol"]
    silent = reports_nothing(experiment)
    what = "programs that report no messages" if silent else f"protocol {protocol}{published}"
    return (
        f"{peers} peers {places} ({experiment['underlay']['kind']}), {what}, "
        f"seed {run.plan.seed}, testbed {experiment['testbed']}{machine}{shared}{slowly}."
    )


def reading(run: Run) -> str | None:
    """Return the remarks of the run's protocol on the run; None if there are none."""
    protocol = PROTOCOLS.get(run.experiment["protocol"])
    if protocol is None or protocol.report_note is None:
        return None
    return protocol.report_note(run.experiment[protocol.section])


def expectation(run: Run) -> str | None:
    """Return which deliveries are expected, and how many ``workload.settle_s`` excludes by the schedule.

    None if the programs report no messages, so that none are expected.
    """
    if reports_nothing(run.experiment):
        return None
    wanted = "satisfied the message's expression" if run.has_expressions else "subscribed"
    rule = f"A delivery is expected of each node, other than the publisher, that was up and {wanted} at the publication"
    settle_s = run.settle_ns / 1e9
    if not settle_s:
        return f"{rule}."
    return (
        f"{rule}, and had been up from the start or for at least {settle_s:g} s. Of nodes that had joined later, "
        f"{run.totals.settling:,} deliveries are left out."
    )


def judged(summary: Summary) -> str:
    """Return why the verdict is what it is: how many checks were made and passed, and what they are about."""
    made = [check for check in summary.checks if check.outcome in (PASSED, FAILED)]
    passed, unjudged, outside = (
        sum(check.outcome == outcome for check in summary.checks) for outcome in (PASSED, NOT_JUDGED, NOT_APPLICABLE)
    )
    do = "does" if outside == 1 else "do"
    counted = (
        f"{passed} of {len(made)} checks passed, {unjudged or 'none'} had to be left unjudged, and "
        f"{outside or 'none'} {do} not apply to this run."
    )
    if summary.scope is None:
        return counted
    by_state: dict[str, list[str]] = {}
    for part, state in structs.asdict(summary.scope).items():
        by_state.setdefault(state, []).append(part)
    checked = by_state.pop(JUDGED, [])
    said = [f"They check {join_words(checked)}."] if checked else []
    said += [f"{state.capitalize()}: {join_words(parts)}." for state, parts in by_state.items()]
    return " ".join([counted, *said])


CLOSEST = 3
"""How many of the checks that passed are named with their limits."""


def closest(summary: Summary) -> str:
    """Return the checks that passed and came closest to their limits, in a sentence; empty if there are none."""
    passed = [each for each in summary.checks if each.outcome == PASSED and 0 < each.worst <= each.tolerance]
    nearest = sorted(passed, key=lambda each: each.worst / each.tolerance, reverse=True)[:CLOSEST]
    named = [
        f"{each.name.replace('_', ' ')} {_limited(each.worst, each.unit)} (limit {_limited(each.tolerance, each.unit)})"
        for each in nearest
    ]
    return f"Closest to their limits: {join_words(named)}." if named else ""


def _limited(value: float, unit: str) -> str:
    return f"{100 * value:.3g} %" if unit == "ratio" else f"{value:.3g} {unit}".rstrip()


def inapplicable(summary: Summary) -> dict[str, list[str]]:
    """Return the checks that do not apply to the run, by the reason."""
    found: dict[str, list[str]] = {}
    for check in summary.checks:
        if check.outcome == NOT_APPLICABLE:
            found.setdefault(check.detail, []).append(check.name.replace("_", " "))
    return found


def label_of(name: str) -> str:
    """Return the meaning and the unit of a headline number; empty for a number of another version of the code."""
    measure = find_measure(name)
    return measure.label if measure is not None else ""


def breakable(name: str) -> Markup:
    """Return a long name as HTML that may continue on a new line after each underscore."""
    return escape(name).replace("_", Markup("_<wbr>"))
