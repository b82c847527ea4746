"""Pairs without a measurement: filled or dropped by a stated rule, and marked.

A rule never changes a measured value, and a filled value never fills another.
"""

from collections.abc import Callable, Sequence
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


Estimate = Callable[[Sequence[str], npt.NDArray[np.intp], tuple[Matrix, Matrix, Matrix], Filled], None]
"""Fills holes. Takes the hosts' names, the holes, what is measured (times, deviations, losses) and what it fills in."""


def missing_pairs(time_ms: Matrix) -> npt.NDArray[np.bool_]:
    """Return (n, n) whether two different hosts have no time (NaN) from row to column."""
    missing: npt.NDArray[np.bool_] = np.isnan(time_ms)
    np.fill_diagonal(missing, val=False)
    return missing


def fill(
    names: Sequence[str], time_ms: Matrix, deviation_ms: Matrix, loss_ratio: Matrix, estimate: Estimate | None
) -> Filled:
    """Fill every hole: with the measurement of the reverse direction, otherwise with an estimate over other hosts.

    The deviation of an estimate is that of the sum of independent parts, and a packet arrives if no part loses it.

    Args:
        names: the hosts' names, for errors.
        time_ms: (n, n); NaN = not measured. The diagonal is ignored.
        deviation_ms: (n, n) standard deviations; used where there is a time.
        loss_ratio: (n, n); used where there is a time.
        estimate: one of ``ESTIMATES``; None = refuse pairs measured in neither direction.

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
    if len(holes) and estimate is None:
        pair = " -> ".join(names[end] for end in holes[0])
        raise InputError(pair, "measured in neither direction")
    if len(holes) and estimate is not None:
        estimate(names, holes, (time_ms, deviation_ms, loss_ratio), filled)
    return filled


def _relay(
    names: Sequence[str], holes: npt.NDArray[np.intp], measured: tuple[Matrix, Matrix, Matrix], filled: Filled
) -> None:
    """Fill holes, (m, 2) pairs of hosts in order, over the best relay: the first with the least sum of two times."""
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


def _connect(
    names: Sequence[str], holes: npt.NDArray[np.intp], measured: tuple[Matrix, Matrix, Matrix], filled: Filled
) -> None:
    """Fill holes, (m, 2) pairs of hosts in order, over the shortest path of measured pairs."""
    time_ms, deviation_ms, loss_ratio = measured
    best_ms, variance, arrival = _shortest_paths(time_ms, deviation_ms**2, 1 - loss_ratio)
    pairs = tuple(holes.T)
    if np.isinf(best_ms[pairs]).any():
        pair = " -> ".join(names[end] for end in holes[np.isinf(best_ms[pairs])][0])
        raise InputError(pair, "measured in neither direction, nor is there a path of measured pairs")
    filled.filled[pairs], filled.time_ms[pairs] = RELAYED, best_ms[pairs]
    if deviation_ms.any():
        filled.deviation_ms[pairs] = np.sqrt(variance[pairs])
    if loss_ratio.any():
        filled.loss_ratio[pairs] = 1 - arrival[pairs]


def _shortest_paths(time_ms: Matrix, variance: Matrix, arrival: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return (n, n) times of the shortest paths of measured pairs, and variances and probabilities of arrival on them.

    Each turn extends the paths to every host by the last pair that makes them shortest, until none becomes shorter.
    This is fast if most pairs are not measured.

    Source: R. Bellman, On a routing problem, Quarterly of Applied Mathematics 16, 1958.
    """
    hosts = np.arange(len(time_ms))
    best_ms = np.where(
        np.eye(len(hosts), dtype=bool), 0.0, np.inf
    )  # of paths to row from column, so that rows are used
    variances, arrivals = np.zeros_like(best_ms), np.ones_like(best_ms)
    measured = ~np.isnan(time_ms)
    np.fill_diagonal(measured, val=False)
    ends = [(host, np.flatnonzero(measured[:, host])) for host in hosts if measured[:, host].any()]
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for host, last in ends:
            sums_ms = best_ms[last] + time_ms[last, host, None]
            chosen = sums_ms.argmin(axis=0)
            sources = np.flatnonzero(sums_ms[chosen, hosts] < best_ms[host])
            relays = last[chosen[sources]]
            best_ms[host, sources] = sums_ms[chosen[sources], sources]
            variances[host, sources] = variances[relays, sources] + variance[relays, host]
            arrivals[host, sources] = arrivals[relays, sources] * arrival[relays, host]
            is_shorter |= len(sources) > 0
    return best_ms.T, variances.T, arrivals.T


ESTIMATES: dict[str, Estimate] = {"relay": _relay, "path": _connect}
"""How pairs are filled that are measured in neither direction, by the name of the rule (``importers.Missing``)."""


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
