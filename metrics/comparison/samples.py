"""A measure in a group of runs, and the difference between two groups.

Runs of equal seeds have the same workload and the same draws. Therefore they are compared in pairs: what both share
cancels out, and a measure that is equal run by run differs by exactly 0.
"""

from collections.abc import Callable
from math import sqrt
from statistics import stdev
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from metrics.intervals import Chances, Contrast, Estimate, estimate, mean_of_pairs, subtract, subtract_several

Over = Literal["runs", "messages"]


class Draws(Struct, frozen=True):
    """A measure of one run, computed from drawn messages.

    Attributes:
        messages: the identifiers of the run's messages. Runs with the same messages draw the same ones.
        values: the measure in each draw.
    """

    messages: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def error(self) -> float:
        """The standard error: for draws of n messages, that of the mean over n - 1.

        Source: Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 2.3.
        """
        n = len(self.messages)
        return stdev(self.values) * sqrt(n / (n - 1))


class Sample(Struct, frozen=True):
    """A measure in the runs of a group that have a value.

    Attributes:
        seeds, values: the seed and value of each run, in the group's order.
        alone: whether the group has one run.
        draws: the draws of that run; None if its messages do not show the measure's error.
    """

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    alone: bool
    draws: Draws | None = None

    @property
    def estimate(self) -> Estimate:
        found = estimate(self.values)
        if self.draws is None:
            return found
        n = len(self.draws.messages)
        return Estimate(found.value, self.draws.error, n - 1, n)

    @property
    def over(self) -> Over:
        """What the estimate's interval covers."""
        return "runs" if self.draws is None else "messages"

    def map(self, change: Callable[[float], float]) -> "Sample":
        """Return the sample with every value changed, for example scaled."""
        draws = self.draws and replace(self.draws, values=tuple(map(change, self.draws.values)))
        return replace(self, values=tuple(map(change, self.values)), draws=draws)


def contrast(one: Sample, baseline: Sample, *, paired: bool) -> Contrast:
    """Subtract the baseline from a sample of another group.

    Errors between messages and errors between runs are of different kinds: a lone run is judged by the other group's
    runs. If neither group varies at all, pairs show no more than the groups do.

    Args:
        one: the sample of the group.
        baseline: the sample of the baseline.
        paired: whether the groups have the same seeds, each once.
    """
    if one.alone and baseline.alone:
        return _contrast_messages(one, baseline) if paired else subtract(one.estimate, baseline.estimate)
    if baseline.alone:
        found = subtract_several(baseline.values[0], one.estimate)
        return found._replace(value=-found.value)
    if one.alone:
        return subtract_several(one.values[0], baseline.estimate)
    if paired and (len(set(one.values)) > 1 or len(set(baseline.values)) > 1):
        base = dict(zip(baseline.seeds, baseline.values, strict=True))
        pairs = [(value, base[seed]) for seed, value in zip(one.seeds, one.values, strict=True) if seed in base]
        if pairs:
            return mean_of_pairs([value - other for value, other in pairs])
    return subtract(one.estimate, baseline.estimate)


def _contrast_messages(one: Sample, baseline: Sample) -> Contrast:
    """Subtract two runs of one seed draw by draw if both have the same messages."""
    ours, theirs = one.draws, baseline.draws
    if ours is None or theirs is None or ours.messages != theirs.messages:
        return subtract(one.estimate, baseline.estimate)
    changes = Draws(ours.messages, tuple(a - b for a, b in zip(ours.values, theirs.values, strict=True)))
    n = len(ours.messages)
    return Contrast(one.values[0] - baseline.values[0], changes.error, n - 1, (n,), Chances(0, 0))
