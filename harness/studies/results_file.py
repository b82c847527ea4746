"""A study's results as one Markdown file, ``results.md``: small enough to be committed, and read again for documents.

It has a head, the numbers of every run, and those over time. Measures that are counted by something are left out,
except the counts that the study's tables show.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from harness.studies.form import RunSpec, Shown, Study, as_shown
from harness.studies.loader import AT_S, EPOCH
from harness.studies.measures import MEASURES, SEEN, split_reduction
from harness.studies.point_run import Row
from harness.studies.points import points_of, seeds_of
from harness.studies.store import ROOT, Result, SweepSpec
from harness.studies.tables import tabulate

RESULTS_FILE = "results.md"
SEED, CPU_S, PEAK_MIB, MOMENT = "seed", "cpu_s", "peak_mib", "moment"
FINGERPRINT = "fingerprint"
END = 0.0
"""The moment of a snapshot's measure whose other moments are not in the file."""

Lines = list[list[str]]
"""The rows of a table, cell by cell."""


class StaleResults(Exception):
    """A results file is not, or no longer, one of its study."""


class ResultsFile(Struct, frozen=True):
    """The content of a results file: its head, and the numbers of its runs."""

    head: dict[str, str]
    results: tuple[Result, ...]


def fingerprint(study: Study) -> str:
    """Return a hash of what a study's file says of its runs: the experiment, its variations, and how it is run.

    Tables, figures and texts do not matter, nor do defaults that the file does not set.
    """
    default = msgspec.to_builtins(RunSpec())
    run = {key: value for key, value in msgspec.to_builtins(study.run).items() if value != default[key]}
    content = msgspec.json.encode((study.experiment, run, study.grid, study.variants), order="deterministic")
    return hashlib.sha256(content).hexdigest()[:16]


def write_results_file(folder: Path, spec: SweepSpec, results: Sequence[Result]) -> None:
    """Write ``results.md`` of a sweep.

    Args:
        folder: the folder of the sweep.
        spec: its specification.
        results: the results of all its runs.
    """
    study = spec.study
    axes = [*results[0].at, SEED]
    single, moments = _columns(study), _moving(study)
    texts = [f"# Results of {study.name}", study.reproduces, tabulate(["", ""], list(_head(spec, results)))]
    rows = [_run_line(result, single) for result in results]
    texts += ["## Runs", tabulate([*axes, CPU_S, PEAK_MIB, *map(_title, single)], rows)]
    if moments:
        lines = [line for result in results for line in _moment_lines(result, moments)]
        texts += ["## Over time", tabulate([*axes, MOMENT, *moments], lines)]
    (folder / RESULTS_FILE).write_text("\n\n".join(filter(None, texts)) + "\n", encoding="utf-8")


def read_results_file(path: Path, study: Study) -> ResultsFile:
    """Read a results file.

    Args:
        path: the file.
        study: the study of which it must be.

    Raises:
        StaleResults: it has other points, seeds, settings or measures than the study.
    """
    tables = list(_read_tables(path.read_text(encoding="utf-8")))
    if len(tables) < 2:
        raise StaleResults(f"{path}: no results file")
    head = {key: value.strip("`") for key, value in tables[0][1:]}
    if head.get(FINGERPRINT) != fingerprint(study):
        raise StaleResults(f"{path}: the experiments of {study.name} have changed since: run the sweep again")
    single, moving = _columns(study), _moving(study)
    axes = list(points_of(study)[0].at)
    width = len(axes) + 1
    expected = [[*axes, SEED, CPU_S, PEAK_MIB, *map(_title, single)]]
    expected += [[*axes, SEED, MOMENT, *moving]] if moving else []
    if [table[0] for table in tables[1:]] != expected:
        raise StaleResults(f"{path}: {study.name} has other measures: run the sweep again")
    rows = {tuple(line[:width]): line[width:] for line in tables[1][1:]}
    over_time: dict[tuple[str, ...], list[Row]] = {}
    for line in tables[2][1:] if moving else []:
        over_time.setdefault(tuple(line[:width]), []).extend(_read_moment(line[width:], moving))
    results = []
    for point in points_of(study):
        for seed in seeds_of(study):
            place = (*map(str, point.at.values()), str(seed))
            if place not in rows:
                raise StaleResults(f"{path}: no run at {', '.join(place)}")
            cpu_s, peak_mib, *numbers = rows.pop(place)
            values = (*_read_run(numbers, single, moving), *over_time.get(place, ()))
            results.append(Result("", point.at, seed, head["code"], float(cpu_s), int(peak_mib), values))
    if rows:
        raise StaleResults(f"{path}: {study.name} has no point {', '.join(next(iter(rows)))}")
    return ResultsFile(head, tuple(results))


def _head(spec: SweepSpec, results: Sequence[Result]) -> Iterator[list[str]]:
    """Yield where the numbers come from."""
    source = Path(spec.source)
    shown = source.relative_to(ROOT) if source.is_relative_to(ROOT) else source.name
    codes = sorted({result.code for result in results})
    yield ["command", f"`{' '.join(['./trellis sweep', str(shown), *spec.options])}`"]
    yield ["commit", f"`{spec.versions.get('trellis revision', 'unknown')}`"]
    yield ["code", f"`{', '.join(codes)}`"]
    yield ["python", spec.versions["python"]]
    yield ["seeds", ", ".join(map(str, seeds_of(spec.study)))]
    yield ["runs", str(len(results))]
    cpu_s = {result.key: result.cpu_s for result in results}
    yield ["processor time", f"{sum(cpu_s.values()):.0f} s, the longest run {max(cpu_s.values()):.0f} s"]
    yield ["largest process", f"{max(result.peak_mib for result in results)} MiB"]
    yield [FINGERPRINT, f"`{fingerprint(spec.study)}`"]


def _shown(study: Study) -> list[Shown]:
    """Return the entries of the tables, figures and claims."""
    entries = [each for table in study.table for each in table.measures]
    entries += [each for figure in study.figure for each in figure.y]
    return [as_shown(each) for each in (*entries, *(claim.of for claim in study.claim))]


def _columns(study: Study) -> list[tuple[str, float | None]]:
    """Return the measures with one number per run, and the counts that are shown, as pairs of a measure and a count."""
    single: dict[tuple[str, float | None], None] = {}
    counted = [(split_reduction(shown.of)[1], shown.by) for shown in _shown(study) if shown.by is not None]
    for name in study.measures:
        if not MEASURES[name].by:
            single[name, None] = None
        single |= {pair: None for pair in counted if pair[0] == name}
    return list(single)


def _moving(study: Study) -> list[str]:
    """Return the single numbers of which the study shows more than one moment or a reduction."""
    names = {name for shown in _shown(study) for reduction, name in [split_reduction(shown.of)] if reduction}
    names |= {split_reduction(shown.of)[1] for shown in _shown(study) if shown.at is not None}
    names |= {as_shown(claim.of).of for claim in study.claim if claim.over_at is not None}
    for figure in study.figure:
        if figure.x in (AT_S, EPOCH):
            names |= {split_reduction(as_shown(shown).of)[1] for shown in figure.y}
    return [name for name in study.measures if name in names and not MEASURES[name].by]


def _title(column: tuple[str, float | None]) -> str:
    name, by = column
    return name if by is None else f"{name} {_number(by)}"


def _run_line(result: Result, columns: Sequence[tuple[str, float | None]]) -> list[str]:
    """Return a run's line: of measures of snapshots the last one, of others that of the whole run."""
    values: dict[tuple[str, float | None], float] = {}
    for row in result.rows:
        if row.moment is None or row.measure in SEEN:
            values[row.measure, row.by] = row.value
    numbers = [_number(values[column]) if column in values else "" for column in columns]
    return [*_place(result), f"{result.cpu_s:.0f}", str(result.peak_mib), *numbers]


def _moment_lines(result: Result, names: Sequence[str]) -> Iterator[list[str]]:
    values = {(row.moment, row.measure): row.value for row in result.rows if row.moment is not None and row.by is None}
    for moment in sorted({moment for moment, name in values if name in names}):
        numbers = [_number(values[moment, name]) if (moment, name) in values else "" for name in names]
        yield [*_place(result), _number(moment), *numbers]


def _place(result: Result) -> list[str]:
    return [*map(str, result.at.values()), str(result.seed)]


def _number(value: float) -> str:
    """Return a number with six significant digits, or a whole one exactly."""
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _read_run(
    cells: Sequence[str], columns: Sequence[tuple[str, float | None]], moving: Sequence[str]
) -> Iterator[Row]:
    for (name, by), cell in zip(columns, cells, strict=True):
        if cell and not (name in SEEN and name in moving):
            yield Row(name, END if name in SEEN else None, by, float(cell))


def _read_moment(cells: Sequence[str], names: Sequence[str]) -> Iterator[Row]:
    moment, *numbers = cells
    for name, cell in zip(names, numbers, strict=True):
        if cell:
            yield Row(name, float(moment), None, float(cell))


def _read_tables(text: str) -> Iterator[Lines]:
    """Yield the Markdown tables of a text, the head as the first row, without the line below it."""
    for block in text.split("\n\n"):
        lines = [line[2:-2].split(" | ") for line in block.splitlines() if line.startswith("| ")]
        if lines:
            yield [lines[0], *lines[2:]]
