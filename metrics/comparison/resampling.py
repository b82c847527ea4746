"""Estimate the variation of a run's measures between its messages, by a bootstrap over messages.

The deliveries of one message are not independent, since they share its publisher, its topic and most of their path.
Therefore messages are drawn, with all their deliveries and copies (a cluster bootstrap: Davison and Hinkley, Bootstrap
Methods and their Application, 1997, section 3.8). The formulas of the headline numbers measure every draw.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.adversaries import read_adversaries
from metrics.comparison.rows import DeliveryRows, read_delivery_rows
from metrics.comparison.samples import Draws, Sample
from metrics.measures.deliveries import DELIVERIES
from metrics.rundir import RunDir

DRAWS = 400
"""Draws per run: the standard error is exact to about 3.5 %."""

_COUNTS = ("messages", "deliveries_expected", "repeated_deliveries")

_STEPS = tuple(f"hops_{quantile}" for quantile in ("p50", "p90", "p99"))

RESAMPLED = tuple(
    each.name
    for each in DELIVERIES.measures
    # a count grows with what was published; a largest value, or a quantile of a few integers, jumps: draws of the same
    # values do not show how much it varies
    if not each.by and each.name not in (*_COUNTS, *_STEPS) and not each.name.endswith("_max")
)
"""The measures whose error follows from one run. Others describe the overlay, of which a run has only one."""


def sample_run(run: RunDir, names: Collection[str] | None = None, draws: int = DRAWS) -> dict[str, Sample]:
    """Return the measures of one run, with draws of its messages if these show the measure's error.

    The draws cover only the variation between the run's messages, not between seeds or repeats. The same run gives the
    same draws.

    Args:
        run: an analysed run.
        names: the measures that are drawn, if their error follows from one run; None = all of these.
        draws: how often its messages are drawn.
    """
    wanted = [name for name in RESAMPLED if names is None or name in names]
    drawn = draw_measures(read_delivery_rows(run, read_adversaries(run)), draws, wanted) if wanted else {}
    numbers = numbers_of(run)
    return {name: Sample((run.plan.seed,), (value,), True, drawn.get(name)) for name, value in numbers.items()}


def numbers_of(run: RunDir) -> dict[str, float]:
    """Return the headline numbers that have a value."""
    return {name: float(value) for name, value in run.summary.headline.items() if isinstance(value, int | float)}


def draw_measures(rows: DeliveryRows, draws: int, names: Collection[str] = RESAMPLED) -> dict[str, Draws]:
    """Measure random draws of a run's messages, which are the same for all measures.

    Returns:
        Nothing if there are fewer than two messages. A measure that has no value in some draw has no draws.
    """
    ids = np.unique(rows.deliveries["message_id"].to_numpy())
    n = len(ids)
    if n < 2:
        return {}
    deliveries, received = (_by_message(table, ids) for table in (rows.deliveries, rows.received))
    random = np.random.default_rng(1)
    found: dict[str, list[float | None]] = {name: [] for name in names}
    for _ in range(draws):
        drawn = random.integers(n, size=n)
        facts = DeliveryRows(n, _take(rows.deliveries, deliveries, drawn), _take(rows.received, received, drawn)).facts
        numbers = {name: value for name, _, value in DELIVERIES.values(facts, names)}
        for name, values in found.items():
            values.append(numbers.get(name))
    messages = tuple(ids.tolist())
    return {
        name: Draws(messages, tuple(float(value) for value in values if value is not None))
        for name, values in found.items()
        if None not in values
    }


Indices = npt.NDArray[np.int64]


def _by_message(table: pa.Table, ids: Indices) -> list[Indices]:
    """Return the rows of each message, as arrays of row numbers."""
    messages = table["message_id"].to_numpy()
    order = np.argsort(messages, kind="stable")
    starts = np.searchsorted(messages[order], ids)
    ends = np.searchsorted(messages[order], ids, side="right")
    return [order[start:end] for start, end in zip(starts, ends, strict=True)]


def _take(table: pa.Table, rows: list[Indices], drawn: Indices) -> pa.Table:
    return table.take(np.concatenate([rows[message] for message in drawn]))
