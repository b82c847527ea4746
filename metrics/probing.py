"""What the rows of ``achieved.parquet`` say: which attempt counts, errors against limits, what stalls explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

QUANTILES = {"p50": 0.5, "p99": 0.99}
"""Of the pairs' RTT errors: each has its limits in the experiment's ``[verdict]``."""

Explain = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
"""Of instants (n,), which lie in a stall of the host: ``metrics.stalls.Stalls.explain``."""

Floats = npt.NDArray[np.float64]
_MS_NS = 1e6


def due_in_stall(
    at_ns: npt.NDArray[np.int64], there_ms: Floats, rtt_ms: Floats, explain: Explain
) -> npt.NDArray[np.bool_]:
    """Which probes were due, anywhere on their way, while the host stalled.

    Args:
        at_ns: (n,) sending instants.
        there_ms: (n,) delay asked from the source to the destination.
        rtt_ms: (n,) round trip asked.
        explain: which instants lie in a stall.
    """
    due_ns = [at_ns, *(at_ns + (after_ms * _MS_NS).astype(np.int64) for after_ms in (there_ms, rtt_ms))]
    return np.asarray(np.logical_or.reduce([explain(instants) for instants in due_ns]))


def limits_ms(asked_rtt_ms: Floats, name: str, limits: Mapping[str, Any]) -> Floats:
    """(n,) limits of the errors' quantile ``name``, by the experiment's ``[verdict]``."""
    return np.asarray(np.maximum(limits[f"rtt_error_{name}_ms"], limits[f"rtt_error_{name}_ratio"] * asked_rtt_ms))


def last_attempts(achieved: pa.Table) -> pa.Table:
    """Rows of ``achieved.parquet`` that count: of pairs that a sweep probed again, only the last attempt's."""
    if "attempt" not in achieved.column_names or achieved.num_rows == 0:
        return achieved
    phases, phase = np.unique(achieved["phase"].to_numpy(), return_inverse=True)
    keys = np.column_stack([phase, achieved["src"].to_numpy(), achieved["dst"].to_numpy()])
    order = np.lexsort((achieved["attempt"].to_numpy(), *keys.T))
    followed = np.append((np.diff(keys[order], axis=0) == 0).all(axis=1), False)
    sampled = phases[phase] == "during"  # random pairs, some of them several times
    counts = np.empty(len(order), bool)
    counts[order] = ~followed
    return achieved.filter(pa.array(counts | sampled))
