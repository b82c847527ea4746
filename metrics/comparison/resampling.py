"""The variation of a run's measures between its messages, by a bootstrap over messages.

The deliveries of one message are not independent, since they share its publisher, its topic and most of its way.
Therefore messages are drawn, with all their deliveries and copies (a cluster bootstrap: Davison and Hinkley, Bootstrap
Methods and their Application, 1997, section 3.8). Every draw is measured by the formulas of the headline numbers.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.adversaries import read_adversaries
from metrics.comparison.rows import DeliveryRows, read_delivery_rows
from metrics.intervals import Estimate
from metrics.measures.deliveries import DELIVERIES
from metrics.rundir import RunDir

DRAWS = 400
"""Draws per run: the standard error is exact to about 3.5 %."""

_INPUTS = ("messages", "deliveries_expected")

_STEPS = tuple(f"hops_{quantile}" for quantile in ("p50", "p90", "p99"))

RESAMPLED = tuple(
    each.name
    for each in DELIVERIES.measures
    # how much was published is not a result; a largest value, or a quantile of a few integers, jumps: draws of the same
    # values do not tell by how much it varies
    if not each.by and each.name not in (*_INPUTS, *_STEPS) and not each.name.endswith("_max")
)
"""The measures of which one run can tell the error. Others describe the overlay, which a run has once."""


def estimate_run(run: RunDir, draws: int = DRAWS) -> dict[str, Estimate]:
    """Estimate the measures of one run; ``n`` is the number of its messages.

    The errors cover only the variation between the run's messages, not between seeds or repeats. The same run gives the
    same errors.

    Args:
        run: an analysed run.
        draws: how often its messages are drawn.
    """
    errors, n = message_errors(read_delivery_rows(run, read_adversaries(run)), draws)
    headline = run.summary.headline
    return {
        name: Estimate(float(value), error, n - 1, n)
        for name, error in errors.items()
        if (value := headline.get(name)) is not None
    }


def message_errors(rows: DeliveryRows, draws: int) -> tuple[dict[str, float], int]:
    """The standard errors of the measures of deliveries, and the number of messages.

    Returns:
        No errors if there are fewer than two messages. A measure that has no value in some draw has no error.
    """
    ids = np.unique(rows.deliveries["message_id"].to_numpy())
    n = len(ids)
    if n < 2:
        return {}, n
    deliveries, received = (_by_message(table, ids) for table in (rows.deliveries, rows.received))
    random = np.random.default_rng(1)
    found: dict[str, list[float | None]] = {name: [] for name in RESAMPLED}
    for _ in range(draws):
        drawn = random.integers(n, size=n)
        facts = DeliveryRows(n, _take(rows.deliveries, deliveries, drawn), _take(rows.received, received, drawn)).facts
        numbers = {name: value for name, _, value in DELIVERIES.values(facts, RESAMPLED)}
        for name, values in found.items():
            values.append(numbers.get(name))
    errors = {
        name: float(np.std(np.array(values, dtype=float), ddof=1))
        for name, values in found.items()
        if None not in values
    }
    # the spread of draws of n messages is that of the mean over n - 1 (Davison and Hinkley, section 2.3)
    return {name: error * (n / (n - 1)) ** 0.5 for name, error in errors.items()}, n


Indices = npt.NDArray[np.int64]


def _by_message(table: pa.Table, ids: Indices) -> list[Indices]:
    """The rows of each message, as arrays of row numbers."""
    messages = table["message_id"].to_numpy()
    order = np.argsort(messages, kind="stable")
    starts = np.searchsorted(messages[order], ids)
    ends = np.searchsorted(messages[order], ids, side="right")
    return [order[start:end] for start, end in zip(starts, ends, strict=True)]


def _take(table: pa.Table, rows: list[Indices], drawn: Indices) -> pa.Table:
    return table.take(np.concatenate([rows[message] for message in drawn]))
