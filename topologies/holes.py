"""Pairs without a measurement: filled or dropped by a stated rule, and marked.

A rule never changes a measured value, and a filled value never fills another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from topologies.model import Matrix
from topologies.reading import InputError

MEASURED, REVERSED, RELAYED = 0, 1, 2
"""The values of ``Underlay.filled``."""


class Filled(NamedTuple):
    """Complete matrices, (n, n): times, deviations, probabilities of loss, and the source of each value."""

    time_ms: Matrix
    deviation_ms: Matrix
    loss_ratio: Matrix
    filled: npt.NDArray[np.int8]


def missing_pairs(time_ms: Matrix) -> npt.NDArray[np.bool_]:
    """Return (n, n) whether two different hosts have no time (NaN) from row to column."""
    missing: npt.NDArray[np.bool_] = np.isnan(time_ms)
    np.fill_diagonal(missing, val=False)
    return missing


def fill(names: Sequence[str], time_ms: Matrix, deviation_ms: Matrix, loss_ratio: Matrix, *, relays: bool) -> Filled:
    """Fill every hole: with the measurement of the reverse direction, otherwise with the best relay.

    The best relay has the least sum of two measured times; the first such relay counts. The deviation over it is that
    of the sum of two independent parts, and a packet arrives if neither part loses it.

    Args:
        names: the hosts' names, for errors.
        time_ms: (n, n); NaN = not measured. The diagonal is ignored.
        deviation_ms: (n, n) standard deviations; used where there is a time.
        loss_ratio: (n, n); used where there is a time.
        relays: whether relays are allowed.

    Raises:
        InputError: a pair cannot be filled.
    """
    missing = missing_pairs(time_ms)
    filled = Filled(_emptied(time_ms), _emptied(deviation_ms), _emptied(loss_ratio), missing.astype(np.int8))
    reverse = missing & ~missing.T
    for whole, measured in zip(filled[:3], (time_ms, deviation_ms, loss_ratio), strict=True):
        if measured.any():
            whole[reverse] = measured.T[reverse]
    holes = np.argwhere(missing & missing.T)
    if len(holes) and not relays:
        pair = " -> ".join(names[end] for end in holes[0])
        raise InputError(pair, "measured in neither direction")
    _relay(names, holes, (time_ms, deviation_ms, loss_ratio), filled)
    return filled


def _relay(
    names: Sequence[str], holes: npt.NDArray[np.intp], measured: tuple[Matrix, Matrix, Matrix], filled: Filled
) -> None:
    """Fill holes, (m, 2) pairs of hosts in order, over the best relay."""
    time_ms, deviation_ms, loss_ratio = measured
    there_ms = np.where(np.isnan(time_ms), np.inf, time_ms)
    np.fill_diagonal(there_ms, np.inf)
    back_ms = np.ascontiguousarray(there_ms.T)
    deviates, loses = bool(deviation_ms.any()), bool(loss_ratio.any())
    for source in np.unique(holes[:, 0]):
        destinations = holes[holes[:, 0] == source, 1]
        detours_ms = there_ms[source] + back_ms[destinations]
        relays = detours_ms.argmin(axis=1)
        best_ms = detours_ms[np.arange(len(relays)), relays]
        if np.isinf(best_ms).any():
            pair = " -> ".join(names[end] for end in (source, destinations[np.isinf(best_ms)][0]))
            raise InputError(pair, "measured in neither direction, nor over any relay")
        filled.filled[source, destinations] = RELAYED
        filled.time_ms[source, destinations] = best_ms
        first, second = (source, relays), (relays, destinations)
        if deviates:
            filled.deviation_ms[source, destinations] = np.hypot(deviation_ms[first], deviation_ms[second])
        if loses:
            filled.loss_ratio[source, destinations] = 1 - (1 - loss_ratio[first]) * (1 - loss_ratio[second])


def complete_hosts(time_ms: Matrix) -> npt.NDArray[np.intp]:
    """Return the numbers of hosts between which no time is missing.

    The host with most missing times, in either direction, is dropped until none is missing; of several such hosts, the
    last one. This need not keep the most hosts possible.
    """
    missing = missing_pairs(time_ms)
    kept = np.ones(len(missing), bool)
    counts = missing.sum(axis=0) + missing.sum(axis=1)
    while counts.max(initial=0) > 0:
        worst = len(counts) - 1 - int(counts[::-1].argmax())
        kept[worst] = False
        counts -= missing[worst] + missing[:, worst].astype(counts.dtype)
        missing[worst] = missing[:, worst] = False
        counts[worst] = 0
    return np.flatnonzero(kept)


def _emptied(matrix: Matrix) -> Matrix:
    """Return a copy without a diagonal; a matrix of zeros stays as it is, without memory."""
    if not matrix.any():  # NaN counts as a value
        return matrix
    copied = matrix.copy()
    np.fill_diagonal(copied, 0)
    return copied
