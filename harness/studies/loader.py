"""Reads study files. Every error is one line with the file and the place in it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.document import naming_origin, read_toml
from harness.experiment.form import Experiment
from harness.experiment.loader import decode, is_study
from harness.plugins import take_plugins
from harness.studies.form import (
    Bounds,
    Cell,
    ClaimSpec,
    FigureSpec,
    QuickSpec,
    RunSpec,
    Shown,
    Study,
    TableSpec,
    as_shown,
)
from harness.studies.measures import MEASURES, OF_RUNS, PUBLISHED, SEEN, WINDOWED, split_reduction
from harness.studies.points import assign, axes_of, is_simulated, points_of, seeds_of

MEASURE = "measure"
"""The axis of a table's measures."""

AT_S, EPOCH = "at_s", "epoch"
"""The axes of a figure's snapshots or windows, and of its epochs."""


def load_study(path: Path, overrides: Sequence[str] = (), *, seeds: int | None = None, quick: bool = False) -> Study:
    """Read a study file.

    Args:
        path: the TOML file.
        overrides: ``key=value`` with keys of the study file, such as ``experiment.workload.topics=50`` or
            ``grid.underlay.hosts=[100, 200]``.
        seeds: n = use the seeds 1 to n instead of the file's.
        quick: use its quick profile.

    Raises:
        ExperimentError: the file or its study is invalid.
    """
    document = read_toml(path, overrides)
    keys = [override.partition("=")[0].strip() for override in overrides]
    if "protocol" in document and not is_study(document):
        raise ExperimentError(str(path), f"an experiment, not a study; try: trellis run {path}")
    if seeds is not None:
        document["seeds"] = seeds
    with naming_origin(path, overrides, seeds=seeds):
        take_plugins(document, path)
        _refuse_overruled(decode(document, Study), keys)
        study = decode(_keep_from_quick(document, keys), Study)
        if quick:
            study = hurry(study, keep_seeds=seeds is not None)
        if any(key.partition(".")[0] == "grid" for key in keys):
            study = _drop_claims(study)
        check_study(study)
    return study


def _refuse_overruled(study: Study, keys: Sequence[str]) -> None:
    """Refuse overrides of keys that an axis sets at every point."""
    for axis in axes_of(study):
        for key in set.intersection(*(set(settings) for settings in axis.settings)):
            if f"experiment.{key}" in keys:
                raise ExperimentError(f"--set experiment.{key}", f"the axis {axis.name!r} sets it at every point")


def _drop_claims(study: Study) -> Study:
    """Return the study without the claims about values that its axes do not have; overrides of the grid remove some."""
    values = {axis.name: axis.values for axis in axes_of(study)}
    kept = [
        claim
        for claim in study.claim
        if all(value in values.get(axis, (value,)) for at in (claim.where, claim.over) for axis, value in at.items())
    ]
    return replace(study, claim=tuple(kept))


def _keep_from_quick(document: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return the document with a quick profile that does not change the keys set on the command line."""
    quick = {name: dict(part) if isinstance(part, dict) else part for name, part in document.get("quick", {}).items()}
    for key in keys:
        part, _, rest = key.partition(".")
        if part == "seeds":
            quick.pop("seeds", None)
        elif part in ("experiment", "run"):
            quick.get("set" if part == "experiment" else "run", {}).pop(rest, None)
        elif part == "grid":
            for name in [name for name in quick.get("grid", {}) if rest == name or rest.startswith(f"{name}.")]:
                del quick["grid"][name]
    return {**document, "quick": quick} if "quick" in document else document


def hurry(study: Study, *, keep_seeds: bool) -> Study:
    """Return the study with its quick profile, without the paper's numbers and claims, which are for other sizes.

    Raises:
        ExperimentError: the profile is invalid for the study.
    """
    quick = study.quick
    experiment = msgspec.json.decode(msgspec.json.encode(study.experiment))
    assign(experiment, quick.set)
    return replace(
        study,
        seeds=study.seeds if keep_seeds or quick.seeds is None else quick.seeds,
        experiment=experiment,
        grid=_narrow(study, quick),
        run=decode({**msgspec.to_builtins(study.run), **quick.run}, RunSpec),
        table=tuple(replace(table, paper=None) for table in study.table),
        figure=tuple(replace(figure, paper=()) for figure in study.figure),
        claim=(),
    )


def _narrow(study: Study, quick: QuickSpec) -> dict[str, Any]:
    """Return the grid with the quick profile's values; the keys that an axis sets stay."""
    grid = dict(study.grid)
    for name, values in quick.grid.items():
        if name not in grid:
            raise ExperimentError(f"$.quick.grid.{name}", f"no such axis; there are {', '.join(grid) or 'none'}")
        grid[name] = {**grid[name], "values": values} if isinstance(grid[name], dict) else values
    return grid


def check_study(study: Study) -> None:
    """Check the rules between fields, and every point.

    Raises:
        ExperimentError: two fields contradict each other, or a point is not a valid experiment.
    """
    for broken, place, problem in _rules(study):
        if broken:
            raise ExperimentError(place, problem)
    of_processes = [point.experiment for point in points_of(study) if not is_simulated(point.experiment)]
    if of_processes:
        for broken, place, problem in _process_rules(study, of_processes):
            if broken:
                raise ExperimentError(place, problem)


def _process_rules(study: Study, experiments: Sequence[Experiment]) -> Iterator[tuple[bool, str, str]]:
    """Yield the rules for studies with points whose peers are processes. ``experiments``: of these points."""
    others = any(each.peer.command or each.peer.programs or each.peer.processes for each in experiments)
    yield others, "$.experiment.peer", "peers of studies are Python peers: the code of other programs is not hashed"
    yield study.run != RunSpec(), "$.run", "only for points that are simulated: the others are whole runs"
    for index, name in enumerate(study.measures):
        problem = f"{name!r} is no headline number, so runs of processes do not have it; docs/results.md lists them"
        yield name not in OF_RUNS, f"$.measures[{index}]", problem


SILENT = "needs publications, but run.length_s simulates without any"


def _rules(study: Study) -> Iterator[tuple[bool, str, str]]:
    """Yield every rule as (broken, place, problem)."""
    run = study.run
    seeds = seeds_of(study)
    yield len(set(seeds)) < len(seeds), "$.seeds", "a seed occurs twice"
    yield run.settled_s is not None and run.length_s is None, "$.run.settled_s", "needs length_s"
    publishes = run.length_s is None
    late = run.length_s is not None and run.control_from_s >= run.length_s
    yield late, "$.run.control_from_s", f"expected less than length_s = {run.length_s}, got {run.control_from_s}"
    yield run.epoch_messages is not None and not publishes, "$.run.epoch_messages", SILENT
    yield run.window_s is not None and not publishes, "$.run.window_s", SILENT
    both = run.window_s is not None and run.epoch_messages is not None
    yield both, "$.run.window_s", "epoch_messages already groups the messages"
    yield run.skip_messages >= (run.epoch_messages or 1), "$.run.skip_messages", "expected less than epoch_messages"
    for index, name in enumerate(study.measures):
        place = f"$.measures[{index}]"
        yield name not in MEASURES, place, f"no such measure: {name!r}; docs/studies.md lists them"
        yield name in PUBLISHED and not publishes, place, SILENT
    axes = [axis.name for axis in axes_of(study)]
    for index, table in enumerate(study.table):
        yield from _table_rules(study, table, f"$.table[{index}]", axes)
    for index, figure in enumerate(study.figure):
        yield from _figure_rules(study, figure, f"$.figure[{index}]", axes)
    judged: set[tuple[str, str]] = set()
    for index, claim in enumerate(study.claim):
        place = f"$.claim[{index}]"
        yield from _claim_rules(study, claim, place, {axis.name: axis.values for axis in axes_of(study)})
        pair = claim.number, claim.reading
        yield bool(claim.reading) and not claim.number, place, "reading needs number"
        yield pair in judged, place, f"a second claim about {claim.number!r} and {claim.reading!r}"
        judged |= {pair} if claim.reading else set()
    for kind, shown in (("table", study.table), ("figure", study.figure)):
        names = [each.name for each in shown]
        yield len(set(names)) < len(names), f"$.{kind}", "two of them have the same name"


def _table_rules(study: Study, table: TableSpec, place: str, axes: list[str]) -> Iterator[tuple[bool, str, str]]:
    yield from _measure_rules(study, table.measures, f"{place}.measures")
    used = (*table.rows, table.columns)
    for axis in used:
        yield axis not in (*axes, MEASURE), place, f"no axis is called {axis!r}; there are {', '.join(axes)}, measure"
    yield len(set(used)) < len(used), place, "an axis occurs twice"
    yield len(table.measures) > 1 and MEASURE not in used, place, 'several measures need the axis "measure"'
    yield from _coverage_rules(table.where, (*used,), place, axes)
    if table.growth_over:
        yield from _growth_rules(study, table.columns, table.growth_over, f"{place}.growth_over")
    if table.paper is not None:
        width = len(table.rows) + len(table.paper.columns)
        for index, row in enumerate(table.paper.rows):
            yield len(row) != width, f"{place}.paper.rows[{index}]", f"expected {width} entries, got {len(row)}"


def _figure_rules(study: Study, figure: FigureSpec, place: str, axes: list[str]) -> Iterator[tuple[bool, str, str]]:
    yield from _measure_rules(study, figure.y, f"{place}.y")
    measured = {split_reduction(as_shown(shown).of)[1] for shown in figure.y} & MEASURES.keys()
    if figure.x in (AT_S, EPOCH):
        yield (
            any(as_shown(shown).at is not None for shown in figure.y),
            f"{place}.y",
            f"`at` cannot be given, since {figure.x} is the x axis",
        )
    if figure.x == AT_S:
        windowed = WINDOWED if study.run.window_s is not None else frozenset[str]()
        yield not measured <= SEEN | windowed, f"{place}.x", "expected measures of snapshots, or of windows, only"
    elif figure.x == EPOCH:
        yield study.run.epoch_messages is None, f"{place}.x", "needs run.epoch_messages"
        yield not measured <= PUBLISHED, f"{place}.x", "expected measures of epochs only"
    elif figure.x not in axes:
        problem = f"no axis is called {figure.x!r}, and not all measures are counted by it"
        yield {MEASURES[name].by for name in measured} != {figure.x}, f"{place}.x", problem
    for axis in figure.series:
        yield axis not in axes, f"{place}.series", f"no axis is called {axis!r}; there are {', '.join(axes)}"
    yield from _coverage_rules(figure.where, (figure.x, *figure.series), place, axes)


def _claim_rules(
    study: Study, claim: ClaimSpec, place: str, axes: dict[str, tuple[Cell, ...]]
) -> Iterator[tuple[bool, str, str]]:
    yield from _measure_rules(study, [claim.of], f"{place}.of")
    for other, key in ((claim.over_of, "over_of"), (claim.same_as, "same_as")):
        if other is not None:
            yield from _measure_rules(study, [other], f"{place}.{key}")
    ways = (claim.met != Bounds(), claim.same_as is not None, claim.reported)
    yield sum(ways) != 1, f"{place}.met", "expected either met, same_as or reported"
    yield claim.reported and claim.partly is not None, f"{place}.partly", "cannot be combined with reported"
    compared = claim.over or claim.over_at is not None or claim.over_of is not None
    if claim.same_as is not None:
        yield bool(compared or claim.growth or claim.partly), f"{place}.same_as", "cannot be combined with others"
    excused = bool(claim.irreproducible)
    yield excused and (claim.reported or claim.ours), f"{place}.irreproducible", "needs a judged claim of the paper"
    yield excused and bool(claim.why), f"{place}.irreproducible", "takes the place of why"
    if claim.growth is not None:
        yield bool(compared), f"{place}.growth", "cannot be combined with a comparison"
        yield from _growth_rules(study, claim.growth.along, claim.growth.over or claim.growth.along, f"{place}.growth")
    for key, given in (("where", claim.where), ("over", claim.over)):
        for axis, value in given.items():
            known = ", ".join(axes)
            yield axis not in axes, f"{place}.{key}", f"no axis is called {axis!r}; there are {known}"
            values = axes.get(axis, ())
            yield bool(values) and value not in values, f"{place}.{key}", f"the axis {axis!r} has no value {value!r}"


def _growth_rules(study: Study, along: str, over: str, place: str) -> Iterator[tuple[bool, str, str]]:
    axis = next((axis for axis in axes_of(study) if axis.name == along), None)
    yield axis is None, place, f"no axis is called {along!r}"
    if over != along:
        yield from _measure_rules(study, [over], place)
    elif axis is not None:
        numeric = all(isinstance(value, int | float) for value in axis.values)
        yield not numeric, place, f"the values of {along!r} are no numbers; name a measure"


def _coverage_rules(
    where: dict[str, Any], used: tuple[str, ...], place: str, axes: list[str]
) -> Iterator[tuple[bool, str, str]]:
    """Yield the rule that every axis is shown or fixed, so that no cell mixes points."""
    for axis in where:
        yield axis not in axes, f"{place}.where", f"no axis is called {axis!r}; there are {', '.join(axes)}"
    for axis in axes:
        yield axis not in (*used, *where), place, f"missing the axis {axis!r}; show it, or fix it in where"


def _measure_rules(study: Study, shown: Sequence[str | Shown], place: str) -> Iterator[tuple[bool, str, str]]:
    for index, each in enumerate(map(as_shown, shown)):
        reduction, name = split_reduction(each.of)
        yield bool(reduction) and each.at is not None, f"{place}[{index}]", f"`at` cannot be combined with {reduction}"
        yield name not in study.measures, f"{place}[{index}]", f"{name!r} is not among the study's measures"
