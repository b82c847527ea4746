"""The points of a study: every combination of its axes' values, each an experiment."""

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from itertools import product
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harness.errors import ExperimentError
from harness.experiment.form import Experiment, resolve
from harness.experiment.loader import decode_experiment
from harness.studies.form import Cell, Study
from harness.testbeds import simulated
from harness.testbeds.registry import find_lack

VARIANT = "variant"
"""The axis of the study's variants."""

Settings = dict[str, Any]
"""Dotted keys of an experiment, with values."""


class Axis(Struct, frozen=True):
    """An axis: a name, and the settings of each of its values."""

    name: str
    values: tuple[Cell, ...]
    settings: tuple[Settings, ...]


class Point(Struct, frozen=True):
    """A combination of the axes' values.

    ``at``: axis -> value, in the order of the axes. ``experiment``: its seed does not matter.
    """

    at: dict[str, Cell]
    experiment: Experiment


def axes_of(study: Study) -> tuple[Axis, ...]:
    """Return the axes in the order of the study file, the variants first.

    Raises:
        ExperimentError: an axis has no values, or is invalid.
    """
    axes = [_read_axis(name, given) for name, given in _flatten(study.grid).items()]
    if study.variants:
        names = tuple(variant.name for variant in study.variants)
        _refuse_repeated("$.variants", names)
        axes.insert(0, Axis(VARIANT, names, tuple(variant.set for variant in study.variants)))
    return tuple(axes)


def points_of(study: Study) -> tuple[Point, ...]:
    """Return all points; the last axis varies fastest.

    Raises:
        ExperimentError: a point is not a valid experiment; the place is below ``$.experiment`` in any case.
    """
    axes = axes_of(study)
    points = []
    for places in product(*(range(len(axis.values)) for axis in axes)):
        at = {axis.name: axis.values[place] for axis, place in zip(axes, places, strict=True)}
        settings = [axis.settings[place] for axis, place in zip(axes, places, strict=True)]
        points.append(Point(at, _make_experiment(study, at, settings)))
    return tuple(points)


def places_of(study: Study) -> tuple[dict[str, Cell], ...]:
    """Return ``Point.at`` of all points, in their order, without their experiments.

    Raises:
        ExperimentError: an axis has no values, or is invalid.
    """
    axes = axes_of(study)
    return tuple(
        dict(zip((axis.name for axis in axes), cells, strict=True))
        for cells in product(*(axis.values for axis in axes))
    )


def keep_points(study: Study, points: Collection[Mapping[str, Cell]]) -> Study:
    """Return the study with only the values of its axes that occur in these points.

    Args:
        study: the study.
        points: all combinations of some values of its axes.
    """
    axes = {axis.name: axis for axis in axes_of(study)}
    used = {name: {point.get(name) for point in points} for name in axes}
    variants = tuple(variant for variant in study.variants if variant.name in used[VARIANT])
    return replace(study, grid=_keep_values(study.grid, axes, used), variants=variants)


def _keep_values(
    grid: Mapping[str, Any], axes: Mapping[str, Axis], used: Mapping[str, Collection[Cell | None]], prefix: str = ""
) -> dict[str, Any]:
    """Return a grid with the used values of each axis; it stays as nested as it is."""
    kept: dict[str, Any] = {}
    for name, given in grid.items():
        whole = f"{prefix}{name}"
        if isinstance(given, dict) and "values" not in given:
            kept[name] = _keep_values(given, axes, used, f"{whole}.")
            continue
        values = given["values"] if isinstance(given, dict) else given
        left = [value for value, cell in zip(values, axes[whole].values, strict=False) if cell in used.get(whole, ())]
        kept[name] = {**given, "values": left} if isinstance(given, dict) else left
    return kept


def seeds_of(study: Study) -> tuple[int, ...]:
    """Return the seeds of every point."""
    return tuple(range(1, study.seeds + 1)) if isinstance(study.seeds, int) else study.seeds


def describe_point(at: Mapping[str, Cell]) -> str:
    """Return a point as text, such as ``nodes = 10, variant = plain``."""
    return ", ".join(f"{axis} = {value}" for axis, value in at.items())


def describe_runs(study: Study) -> str:
    """Return how many different runs a study has, with the points and seeds that they come from."""
    points, seeds = points_of(study), len(seeds_of(study))
    different = {msgspec.json.encode(resolve(point.experiment), order="deterministic") for point in points}
    counted = f"points: {len(points)}, seeds: {seeds}"
    if len(different) == len(points):
        return f"{len(points) * seeds} runs ({counted})"
    return f"{len(different) * seeds} different runs ({counted}; points with equal experiments share runs)"


def assign(document: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Set dotted keys in nested sections.

    Raises:
        ExperimentError: a key leads through a value.
    """
    for key, value in settings.items():
        *sections, last = key.split(".")
        section = document
        for name in sections:
            section = section.setdefault(name, {})
            if not isinstance(section, dict):
                raise ExperimentError(f"$.experiment.{key}", f"{name} is a value, not a section")
        section[last] = value


def _make_experiment(study: Study, at: Mapping[str, Cell], settings: list[Settings]) -> Experiment:
    document = {"name": study.name, "testbed": simulated.TESTBED.name, **deepcopy(study.experiment)}
    try:
        for given in settings:
            assign(document, given)
        experiment = decode_experiment(document)
    except ExperimentError as error:
        where = describe_point(at)
        place = error.path if error.path.startswith("$.experiment") else f"$.experiment{error.path[1:]}"
        raise ExperimentError(place, f"{error.problem}{f' (at {where})' if where else ''}") from None
    if experiment.faults:
        raise ExperimentError("$.experiment.faults", "studies have no faults; try: trellis run")
    if not is_simulated(experiment) and find_lack(experiment.testbed, "inventory") is None:
        problem = f'studies are simulated or run on this machine, got "{experiment.testbed}"'
        raise ExperimentError("$.experiment.testbed", problem)
    if "seed" in document:
        raise ExperimentError("$.experiment.seed", "set by the study's seeds")
    return experiment


def is_simulated(experiment: Experiment) -> bool:
    """Return whether a point is simulated in memory; the peers of other points are processes on this machine."""
    return find_lack(experiment.testbed, "simulate") is None


def _flatten(grid: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the axes by dotted names, however the file nests them; of two entries for an axis, the last one counts."""
    flat: dict[str, Any] = {}
    for name, given in grid.items():
        if isinstance(given, dict) and "values" not in given:
            flat |= _flatten(given, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = given
    return flat


def _read_axis(name: str, given: Any) -> Axis:  # noqa: ANN401 - what a file holds
    place = f"$.grid.{name}"
    if isinstance(given, dict):
        if set(given) != {"keys", "values"} or not _are_texts(given["keys"]):
            raise ExperimentError(place, "expected a list of values, or keys (a list of dotted keys) and values")
        keys, values = given["keys"], given["values"]
    else:
        keys, values = [name], given
    if not isinstance(values, list) or not values:
        raise ExperimentError(place, "expected a list of at least one value")
    cells = tuple(_cells(place, keys, values))
    _refuse_repeated(place, cells)
    return Axis(name, cells, tuple(_spread(place, keys, value) for value in values))


def _are_texts(keys: object) -> bool:
    return isinstance(keys, list) and bool(keys) and all(isinstance(key, str) for key in keys)


def _cells(place: str, keys: list[str], values: list[Any]) -> Iterator[Cell]:
    """Yield the name of each value: the value, or its parts if it sets several keys to different ones."""
    for value in values:
        if isinstance(value, list) and len(keys) > 1:
            yield "-".join(map(str, value))
        elif isinstance(value, bool):
            yield str(value).lower()
        elif isinstance(value, int | float | str):
            yield value
        else:
            raise ExperimentError(place, f"expected numbers, texts or booleans, got {value!r:.60}")


def _spread(place: str, keys: list[str], value: Any) -> Settings:  # noqa: ANN401 - what a file holds
    """Return the settings of one value: the same for all keys, or one per key."""
    if not isinstance(value, list):
        return dict.fromkeys(keys, value)
    if len(value) != len(keys):
        raise ExperimentError(place, f"expected {len(keys)} values, one for each key, got {len(value)}")
    return dict(zip(keys, value, strict=True))


def _refuse_repeated(place: str, values: tuple[Cell, ...]) -> None:
    repeated = [value for index, value in enumerate(values) if value in values[:index]]
    if repeated:
        raise ExperimentError(place, f"{repeated[0]!r} occurs twice")
