"""How a measure grows along an axis: the exponent b of y = a x^b, fitted to a study's results."""

from collections.abc import Sequence

import numpy as np

from harness.studies.form import Shown
from harness.studies.results import reduce_run
from harness.studies.store import Result
from metrics.intervals import Interval, interval


def fit_exponent(results: Sequence[Result], along: str, over: str, shown: Shown) -> Interval | None:
    """Fit the exponent of a measure, and its interval over the seeds.

    For each seed, it is the slope of the least-squares line through the logarithms of x and y at the points. A point
    where one of them is missing or not positive is left out, and so is a seed with fewer than two different x.

    Args:
        results: runs that differ in the axis and the seed alone.
        along: the axis of the points.
        over: x: this axis, if its values are numbers, or a measure.
        shown: y.

    Returns:
        None if no seed has two points.
    """
    by_seed: dict[int, list[tuple[float, float]]] = {}
    for result in results:
        at = result.at[along]
        x = at if over == along else reduce_run(result, over)
        y = reduce_run(result, shown.of, shown.by, shown.at)
        if not isinstance(x, str) and x is not None and y is not None and x > 0 and y > 0:
            by_seed.setdefault(result.seed, []).append((x, y))
    slopes = [_slope(points) for points in by_seed.values() if len({x for x, _ in points}) > 1]
    return interval(slopes) if slopes else None


def _slope(points: Sequence[tuple[float, float]]) -> float:
    x, y = np.log(np.array(points)).T
    x -= x.mean()
    return float(x @ y / (x @ x))
