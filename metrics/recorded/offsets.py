"""Pairs of hosts whose delay is wrong: in both sweeps of the idle network, their RTT errors differ from the others'.

A machine that is busy for a moment delays probes of some pairs, at random. It seldom delays all probes of a pair in
both sweeps. A wrong delay is in all of them. So the offset of a pair is the smaller one of both sweeps, and a small
limit finds wrong delays that ``rtt_error_pairs`` lets pass.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metrics.asked import Floats
from metrics.recorded.probing import last_attempts
from metrics.recorded.stalls import Ints
from metrics.rundir.phases import IDLE_PHASES

OFFSET_MS = 0.35
"""The largest offset of a pair (ms)."""

DEVIATIONS = 6.0
"""The largest offset, in median absolute deviations of all pairs: if all errors are large, some offsets are, too."""

_BASE = 1 << 31
"""More than any number of hosts: two of them are one number."""


class Offsets(Struct, frozen=True):
    """How far pairs are off in both sweeps.

    Attributes:
        pairs: the pairs that were answered in both sweeps.
        beyond: the pairs whose offset is beyond the limit.
        limit_ms: the limit: the larger of ``OFFSET_MS`` and ``DEVIATIONS``.
        worst_ms: the largest offset, by its amount.
        name: the hosts of that pair, for people.
    """

    pairs: int
    beyond: int
    limit_ms: float
    worst_ms: float
    name: str


def measure_offsets(rows: pa.Table) -> Offsets | None:
    """Compare the errors of each pair of hosts in both sweeps with those of all pairs.

    Args:
        rows: of ``achieved.parquet``, all phases and attempts.

    Returns:
        The offsets; None if there are not two sweeps.
    """
    latest = last_attempts(rows)
    sweeps = [latest.filter(pc.equal(latest["phase"], phase)) for phase in IDLE_PHASES]
    if not all(sweep.num_rows for sweep in sweeps):
        return None
    (before, before_ms), (after, after_ms) = map(_offsets_ms, sweeps)
    spread_ms = max(float(np.median(np.abs(each))) if len(each) else 0.0 for each in (before_ms, after_ms))
    limit_ms = max(OFFSET_MS, DEVIATIONS * spread_ms)
    pairs, first, second = np.intersect1d(before, after, assume_unique=True, return_indices=True)
    if not len(pairs):
        return Offsets(0, 0, limit_ms, 0.0, "none")
    both_ms = np.stack([before_ms[first], after_ms[second]])
    smaller_ms = np.abs(both_ms).min(axis=0) * (np.sign(both_ms[0]) == np.sign(both_ms[1]))
    worst = int(smaller_ms.argmax())
    low, high = divmod(int(pairs[worst]), _BASE)
    worst_ms = float(np.copysign(smaller_ms[worst], both_ms[0, worst]))
    return Offsets(len(pairs), int((smaller_ms > limit_ms).sum()), limit_ms, worst_ms, f"hosts {low} and {high}")


def _offsets_ms(sweep: pa.Table) -> tuple[Ints, Floats]:
    """Return the pairs with an answer, as numbers that ascend, and their errors less the median error.

    Earlier versions probed both directions of a pair: the one with the smaller error counts.
    """
    answered = sweep.filter(pc.is_valid(sweep["rtt_ms"]))
    ends = np.sort([answered[end].to_numpy() for end in ("src", "dst")], axis=0)
    error_ms = answered["rtt_ms"].to_numpy() - answered["asked_rtt_ms"].to_numpy()
    order = np.argsort(np.abs(error_ms), kind="stable")
    pairs, chosen = np.unique((ends[0] * _BASE + ends[1])[order], return_index=True)
    kept_ms = error_ms[order][chosen]
    return pairs, kept_ms - np.median(kept_ms) if len(kept_ms) else kept_ms
