"""The definition of a measure, and the formulas that many measures share."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from metrics.measures.distribution import Distribution

Facts = TypeVar("Facts")

Values = npt.NDArray[Any]

Sample: TypeAlias = Values | Distribution
"""Values of which statistics are taken."""

Formula: TypeAlias = Callable[[Facts], float | Iterable[tuple[float, float]] | None]
"""Computes the value from the facts, None if there is nothing to compute it from. If something counts the measure, the
value is pairs of what is counted by and the count."""

Value = tuple[str, float | None, float]
"""A measure's name, what it is counted by (None for a single number), and its value."""

COUNTERS = ("degree", "rank", "kind", "length", "percent")
"""The units by which nodes, frames, pairs or deliveries are counted. For these, a missing count is 0."""


def ratio(part: float, whole: float) -> float | None:
    """Return ``part / whole``; None if ``whole`` is 0."""
    return float(part / whole) if whole else None


def mean(values: Sample) -> float | None:
    """Return the mean; None if there are no values."""
    return float(values.mean()) if len(values) else None


def largest(values: Sample) -> float | None:
    """Return the largest value, an integer for an array of integers; None if there are no values."""
    if not len(values):
        return None
    found: float = values.max() if isinstance(values, Distribution) else values.max().item()
    return found


def total(values: Sample) -> float:
    """Return the sum, an integer for integers."""
    found: float = values.total if isinstance(values, Distribution) else values.sum().item()
    return found


def quantile(values: Sample, share: float) -> float | None:
    """Return a quantile, interpolated between two values; None if there are none."""
    if isinstance(values, Distribution):
        return values.quantile(share) if values.count else None
    return float(np.quantile(values, share)) if len(values) else None


def count_values(values: Sample) -> Iterator[tuple[int, int]]:
    """Yield how often each integer of an array occurs, in rising order."""
    if isinstance(values, Distribution):
        raise TypeError("of a distribution not every value is known")
    found, counts = np.unique(values, return_counts=True)
    return zip(found.tolist(), counts.tolist(), strict=True)


STATISTICS: dict[str, tuple[str, Callable[[Sample], float | None]]] = {
    "mean": ("mean", mean),
    "max": ("largest", largest),
    "p50": ("median", partial(quantile, share=0.5)),
    "p90": ("90th percentile", partial(quantile, share=0.9)),
    "p99": ("99th percentile", partial(quantile, share=0.99)),
}
"""The endings of names of measures: each in words, and its formula."""


def _composed(statistic: Callable[[Sample], float | None], values: Callable[[Facts], Sample]) -> Formula[Facts]:
    return lambda facts: statistic(values(facts))


class Measure(Struct, Generic[Facts], frozen=True):
    """A measure."""

    name: str  # its name in files, with its unit if that is a unit of time
    unit: str  # the unit of the value; ``ratio`` for shares (0..1), empty for a plain number
    text: str  # its meaning, as a phrase that stands alone
    formula: Formula[Facts]  # how it is computed
    by: str = ""  # what it is counted by; empty for a single number

    @property
    def counts(self) -> bool:
        """Whether a missing count is 0."""
        return self.by in COUNTERS

    @property
    def unsaid_unit(self) -> str:
        """The unit, unless the text names it."""
        return "" if self.unit in re.findall(r"[\w/]+", self.text) else self.unit

    @property
    def label(self) -> str:
        """The meaning with the unit, for tables and axes."""
        return f"{self.text} ({self.unsaid_unit})" if self.unsaid_unit else self.text


class Family(Generic[Facts]):
    """The measures of the same facts, in the order in which they are computed and shown.

    Args:
        title: what the measures are about.
        when: what they need in a study: a run, a snapshot of its overlay, its messages, or the epochs of a protocol
            that learns.
    """

    def __init__(self, title: str, when: Literal["run", "snapshot", "messages", "epochs"] = "run") -> None:
        self.title = title
        self.when = when
        self.measures: list[Measure[Facts]] = []

    def add(self, name: str, unit: str, text: str, formula: Formula[Facts], by: str = "") -> None:
        """Define a measure; the arguments are the attributes of ``Measure``.

        Args:
            name: the name of the measure.
            unit: the unit of its value.
            text: its meaning.
            formula: computes it.
            by: what it is counted by.
        """
        self.measures.append(Measure(name, unit, text, formula, by))

    def add_statistics(
        self, name: str, unit: str, text: str, values: Callable[[Facts], Sample], *statistics: str
    ) -> None:
        """Define a measure for each statistic of an array of values.

        Args:
            name: what precedes the statistic in the names, such as ``degree`` of ``degree_mean``.
            unit: the unit of the values.
            text: what precedes the statistic in the texts.
            values: returns the array from the facts.
            statistics: keys of ``STATISTICS``.
        """
        for key in statistics:
            words, statistic = STATISTICS[key]
            self.add(f"{name}_{key}", unit, f"{text}, {words}", _composed(statistic, values))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(measure.name for measure in self.measures)

    def values(self, facts: Facts, wanted: Collection[str]) -> list[Value]:
        """Compute the measures among ``wanted`` that have a value.

        Args:
            facts: what the formulas read.
            wanted: names of measures, of this family and others.

        Returns:
            The values in the family's order; a measure that is counted by something has one value per count.
        """
        found: list[Value] = []
        for measure in self.measures:
            value = measure.formula(facts) if measure.name in wanted else None
            if isinstance(value, Iterable):
                found += [(measure.name, by, count) for by, count in value]
            elif value is not None:
                found.append((measure.name, None, value))
        return found

    def numbers(self, facts: Facts) -> dict[str, float | None]:
        """Compute all measures that are single numbers; None = there is nothing to compute it from."""
        names = [measure.name for measure in self.measures if not measure.by]
        return dict.fromkeys(names) | {name: value for name, _, value in self.values(facts, names)}


class Addition(Struct, Generic[Facts], frozen=True):
    """A measure of a plugin, and the family whose facts it is computed from."""

    family: Family[Facts]
    measure: Measure[Facts]

    @property
    def name(self) -> str:
        return self.measure.name
