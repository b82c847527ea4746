"""Counts by a number, such as a node or a second: each task counts its rows, and the counts of all tasks are added."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from metrics.checks.evidence import Outcome
from metrics.measures.measure import Values
from metrics.pcap.walk import Ints

Counts = TypeVar("Counts", bound=tuple[int, ...])

Tally: TypeAlias = dict[int, Counts]


def tally(kind: Callable[..., Counts], keys: Ints, *columns: Values) -> Tally[Counts]:
    """Add up rows by their key, in the order of the keys.

    Args:
        kind: a named tuple of the number of rows and of the sums of the columns.
        keys: (n,) of the rows.
        columns: (n,) truth values, or integers whose sums are below 2^53, each.
    """
    found, place = np.unique(keys, return_inverse=True)
    sums = [np.bincount(place, each, len(found)).astype(np.int64).tolist() for each in (None, *columns)]
    return {key: kind(*counts) for key, *counts in zip(found.tolist(), *sums, strict=True)}


def add_tallies(tallies: Iterable[Tally[Counts]]) -> Tally[Counts]:
    """Return the sums of several tallies, in the order of their keys."""
    total: Tally[Counts] = {}
    for each in tallies:
        total |= {key: add_counts(counts, total[key]) if key in total else counts for key, counts in each.items()}
    return dict(sorted(total.items()))


def add_counts(first: Counts, *others: Counts) -> Counts:
    """Return the sums of counts of one kind, field by field."""
    kind: Any = type(first)
    total: Counts = kind(*map(sum, zip(first, *others, strict=True)))
    return total


def add_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Add up the comparisons of several tasks."""
    worst = max(each.worst for each in outcomes)
    tested, failed, total = (sum(getattr(each, name) for each in outcomes) for name in ("tested", "failed", "total"))
    return Outcome(tested, failed, worst, total)
