"""The record of a study's results: one JSON file, small enough to be committed, that the pages are made from.

It has every measure that is a single number, at each point: the mean, half the width of its 95 % interval, the number
of seeds with a value, and the value of each seed. Numbers over time and distributions follow where a table, figure or
claim of the study shows them. Numbers have six significant digits. Means, intervals and claims are there for readers;
all else is computed from the values of the seeds.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from harness.studies.claims import judge, show_values
from harness.studies.code_hash import code_of
from harness.studies.form import Cell, RunSpec, Study
from harness.studies.kept import Columns, Kept, six_digits
from harness.studies.origin import Origin
from harness.studies.points import keep_points, places_of, points_of, seeds_of
from harness.studies.store import Result, study_code
from metrics.intervals import interval

RECORD_FILE = "record.json"
WIDTH = 160
"""Values that fit in a line of this width are not spread over several lines."""


class StaleRecord(Exception):
    """A record is not, or no longer, one of its study."""


class Source(Struct, frozen=True):
    """What a record says of its results as a whole.

    Attributes:
        command: the command that computes the same results.
        origin: the commit, the day and the machine.
        code: the hash of the code that determines the results of any run (``store.study_code``).
        experiments: the ``fingerprint`` of the study.
        seeds: the seeds of every point.
        runs: how many runs there are; points with the same experiment share one.
        cpu_s: their processor time.
        longest_run_s: that of the longest.
        largest_process_mib: the most memory that a process had.
    """

    command: str
    origin: Origin
    code: str
    experiments: str
    seeds: tuple[int, ...]
    runs: int
    cpu_s: float
    longest_run_s: float
    largest_process_mib: int


class Record(Struct, frozen=True):
    """A study's recorded results. ``results``: one per point and seed, in the order of the study."""

    source: Source
    results: tuple[Result, ...]


def fingerprint(study: Study) -> str:
    """Return a hash of what a study's file says of its runs: the experiment, its variations, and how it is run.

    Tables, figures and texts do not matter, nor do defaults that the file does not set.
    """
    default = msgspec.to_builtins(RunSpec())
    run = {key: value for key, value in msgspec.to_builtins(study.run).items() if value != default[key]}
    content = msgspec.json.encode((study.experiment, run, study.grid, study.variants), order="deterministic")
    return hashlib.sha256(content).hexdigest()[:16]


def make_source(study: Study, command: str, origin: Origin, results: Sequence[Result]) -> Source:
    """Sum up the runs of a study.

    Args:
        study: the study.
        command: the command that computes the results.
        origin: where they come from.
        results: the results of all its runs.

    Raises:
        StaleRecord: a result is of other code than this.
    """
    codes = {tuple(point.at.items()): code_of([point.experiment], study.measures) for point in points_of(study)}
    if any(result.code != codes[tuple(result.at.items())] for result in results):
        raise StaleRecord(f"a result of {study.name} is of other code than this")
    cpu_s = {result.key: result.cpu_s for result in results}
    return Source(
        command,
        origin,
        study_code(study),
        fingerprint(study),
        seeds_of(study),
        len(cpu_s),
        round(sum(cpu_s.values()), 1),
        round(max(cpu_s.values()), 1),
        max(result.peak_mib for result in results),
    )


def encode_record(study: Study, record: Record) -> str:
    """Return the text of a record's file."""
    kept = Kept(study)
    claims = []
    results = tuple(kept.restore(result.at, result.seed, kept.columns(result)) for result in record.results)
    every = places_of(study)
    for claim in study.claim:
        finding = judge(claim, results, every)
        claims.append({"claim": claim.text, "verdict": finding.verdict, "value": show_values(finding)})
    points = [_encode_point(kept, at, found) for at in every if (found := _at(record.results, at))]
    head = {"study": study.name, **msgspec.to_builtins(record.source)}
    return "".join(_lay_out({**head, "claims": claims, "points": points}, "")) + "\n"


def read_record(path: Path, study: Study, *, partial: bool = False) -> Record:
    """Read a record.

    Args:
        path: the file.
        study: the study of which it must be.
        partial: whether it may lack seeds and values of axes, which the study has got since. Its own points must be
            points of the study with the same experiments.

    Raises:
        StaleRecord: it has other points, seeds or settings than the study, or is no record.
    """
    try:
        content = msgspec.json.decode(path.read_bytes())
        source = msgspec.convert({key: content[key] for key in Source.__struct_fields__}, Source)
        points = {tuple(point["at"].items()): point for point in content["points"]}
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise StaleRecord(f"{path}: no record: {error}") from None
    recorded = keep_points(study, [dict(at) for at in points]) if partial else study
    if source.experiments != fingerprint(recorded):
        raise StaleRecord(f"{path}: the experiments of {study.name} have changed since: run the sweep again")
    if source.seeds != seeds_of(study) and not (partial and set(source.seeds) <= set(seeds_of(study))):
        raise StaleRecord(f"{path}: {study.name} has other seeds: run the sweep again")
    expected = [tuple(at.items()) for at in places_of(recorded)]
    if list(points) != expected:
        raise StaleRecord(f"{path}: {study.name} has other points: run the sweep again")
    kept = Kept(study)
    return Record(source, tuple(run for at in expected for run in _decode_point(kept, points[at], source)))


def _at(results: Sequence[Result], at: dict[str, Cell]) -> list[Result]:
    return [result for result in results if result.at == at]


def _encode_point(kept: Kept, at: dict[str, Cell], results: Sequence[Result]) -> dict[str, Any]:
    """Return the point of these runs, one per seed."""
    runs = [kept.columns(result) for result in results]
    point: dict[str, Any] = {
        "at": at,
        "cpu_s": [run.cost[0] for run in runs],
        "peak_mib": [run.cost[1] for run in runs],
        "values": {title: _summarise([run.values.get(title) for run in runs]) for title in kept.values},
    }
    moments = {title: _spread([run.moments.get(title, {}) for run in runs]) for title in kept.moments}
    counts = {title: _spread([run.counts.get(title, {}) for run in runs]) for title in kept.counts}
    for kind, columns in (("moments", moments), ("counts", counts)):
        if known := {title: column for title, column in columns.items() if column["at"]}:
            point[kind] = known
    return point


def _decode_point(kept: Kept, point: dict[str, Any], source: Source) -> Iterator[Result]:
    """Yield the runs of a point, one per seed; what the study no longer shows is left out."""
    for index, seed in enumerate(source.seeds):
        values = {title: column["seeds"][index] for title, column in point["values"].items() if title in kept.values}
        values = {title: value for title, value in values.items() if value is not None}
        moments = _of_seed(point.get("moments", {}), index, kept.moments)
        counts = _of_seed(point.get("counts", {}), index, kept.counts)
        cost = point["cpu_s"][index], point["peak_mib"][index]
        yield kept.restore(point["at"], seed, Columns(cost, values, moments, counts))


def _summarise(values: Sequence[float | None]) -> dict[str, Any]:
    """Return the mean of a point, its interval and n beside the values of its seeds."""
    found = [value for value in values if value is not None]
    if not found:
        return {"mean": None, "half_width": None, "n": 0, "seeds": list(values)}
    mean, half_width, n = interval(found)
    width = None if half_width is None else six_digits(float(f"{half_width:.3g}"))
    return {"mean": six_digits(mean), "half_width": width, "n": n, "seeds": list(values)}


def _spread(runs: Sequence[dict[float, float]]) -> dict[str, Any]:
    """Return numbers by moment or count: the moments or counts that any seed has, and the numbers of each seed."""
    places = sorted({place for run in runs for place in run})
    return {
        "at": [six_digits(place) for place in places],
        "seeds": [[run.get(place) for place in places] for run in runs],
    }


def _of_seed(columns: dict[str, Any], index: int, known: Iterable[str]) -> dict[str, dict[float, float]]:
    """Return what ``_spread`` made of one seed's numbers."""
    return {
        title: {
            float(place): value
            for place, value in zip(columns[title]["at"], columns[title]["seeds"][index], strict=True)
            if value is not None
        }
        for title in known
        if title in columns
    }


def _lay_out(value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the parts of JSON text whose lines are values: lists of numbers and short entries stay on one line."""
    line = _one_line(value)
    simple = isinstance(value, list) and all(not isinstance(each, list | dict) for each in value)
    if not value or simple or not isinstance(value, list | dict) or len(indent) + len(line) <= WIDTH:
        yield line
        return
    inner = indent + " "
    opening, closing = "[]" if isinstance(value, list) else "{}"
    yield f"{opening}\n"
    entries: list[tuple[str, Any]]
    if isinstance(value, list):
        entries = [("", each) for each in value]
    else:
        entries = [(f"{_one_line(key)}: ", each) for key, each in value.items()]
    for place, (key, each) in enumerate(entries, 1):
        yield f"{inner}{key}"
        yield from _lay_out(each, inner)
        yield ",\n" if place < len(entries) else "\n"
    yield f"{indent}{closing}"


def _one_line(value: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(value, ensure_ascii=False)
