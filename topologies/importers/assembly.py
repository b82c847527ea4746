"""Makes an underlay of rows that each have the time of one pair of hosts.

A list of pairs and a mesh have such rows. What they leave open is settled here, once: which direction a row is about,
whether its time is a round trip, and what becomes of pairs without a row.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from topologies.generated import plain_underlay
from topologies.holes import ESTIMATES, RELAYED, REVERSED, Filled, complete_hosts, fill, missing_pairs
from topologies.importers import Options
from topologies.limits import LARGEST_DELAY_MS
from topologies.model import Host, Matrix, Underlay
from topologies.reading import InputError

Indices = npt.NDArray[np.int64]


class PairRows:
    """Rows as columns of numbers. For errors, ``file`` names the file and ``place`` the place of a row in it."""

    def __init__(self, file: str, place: Callable[[int], str]) -> None:
        self.file = file
        self.place = place
        self.sources = array("q")
        self.destinations = array("q")
        self.times_ms = array("d")
        self.deviations_ms = array("d")
        self.loss_ratios = array("d")

    def add(self, source: int, destination: int, time_ms: float, deviation_ms: float, loss_ratio: float) -> None:
        self.sources.append(source)
        self.destinations.append(destination)
        self.times_ms.append(time_ms)
        self.deviations_ms.append(deviation_ms)
        self.loss_ratios.append(loss_ratio)


def assemble(
    kind: str, hosts: Sequence[Host], rows: PairRows, options: Options
) -> tuple[Underlay, npt.NDArray[np.intp], list[str]]:
    """Return the underlay, the numbers of the hosts that it has, and a sentence for everything assumed or filled.

    A file in which no two hosts have a row in both directions is about both directions, unless ``options.directed`` is
    true. A round trip is halved, its deviation is divided by the square root of 2, and its probability of arrival is
    that of two directions with the same loss.

    Args:
        kind: the underlay's kind.
        hosts: all hosts, by number.
        rows: times of pairs of different hosts, with deviations and probabilities of loss, 0 = none.
        options: all are used; ``times`` is set.

    Raises:
        InputError: a pair has two rows, a time is too long, or a pair without a row is refused.
    """
    size = len(hosts)
    if size < 2 or not rows.sources:
        raise InputError(rows.file, f"expected at least two hosts with a time between them, got {size} hosts")
    sources, destinations = (np.asarray(ends, np.int64) for ends in (rows.sources, rows.destinations))
    _refuse_repeated(rows, sources * size + destinations, hosts)
    _refuse_long(rows, options)
    notes = []
    both = _are_undirected(sources, destinations, size) if options.directed is None else not options.directed
    if both:
        _refuse_repeated(rows, np.minimum(sources, destinations) * size + np.maximum(sources, destinations), hosts)
        notes.append("directions: each row is about both")
    ends = (sources, destinations, both, size)
    time_ms = _matrix(rows.times_ms, *ends, empty=np.nan)
    deviation_ms, loss_ratio = (_matrix(values, *ends, empty=0.0) for values in (rows.deviations_ms, rows.loss_ratios))
    np.fill_diagonal(time_ms, 0)
    kept, dropped = _kept(time_ms, hosts, options, rows.file)
    notes += dropped
    if len(kept) < size:
        index = np.ix_(kept, kept)
        time_ms, deviation_ms, loss_ratio = (matrix[index] for matrix in (time_ms, deviation_ms, loss_ratio))
    named = [hosts[number].name for number in kept]
    complete = _complete(named, time_ms, deviation_ms, loss_ratio, options, rows.file)
    reverse, relayed = (int((complete.filled == how).sum()) for how in (REVERSED, RELAYED))
    if reverse or relayed:
        way = "a path" if options.missing == "path" else "a relay"
        notes.append(f"filled: {reverse} pairs taken from the reverse direction, {relayed} estimated over {way}")
    underlay = plain_underlay(kind, tuple(hosts[number] for number in kept), complete.time_ms)
    return _one_way(underlay, complete, options), kept, notes


def _one_way(underlay: Underlay, complete: Filled, options: Options) -> Underlay:
    _, deviation_ms, loss_ratio, filled = complete
    if options.times == "one-way":
        return replace(underlay, jitter_ms=deviation_ms, loss_ratio=loss_ratio, filled=filled)
    return replace(
        underlay,
        delay_ms=underlay.delay_ms / 2,
        jitter_ms=deviation_ms / math.sqrt(2),
        loss_ratio=1 - np.sqrt(1 - loss_ratio),
        filled=filled,
    )


def _matrix(
    values: array[float], sources: Indices, destinations: Indices, both: bool, size: int, *, empty: float
) -> Matrix:
    matrix = np.full((size, size), empty)
    matrix[sources, destinations] = values
    if both:
        matrix[destinations, sources] = values
    return matrix


def _are_undirected(sources: Indices, destinations: Indices, size: int) -> bool:
    """Return whether no two hosts have a row in both directions."""
    there, back = sources * size + destinations, destinations * size + sources
    return not np.isin(there, back).any()


def _refuse_repeated(rows: PairRows, pairs: Indices, hosts: Sequence[Host]) -> None:
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(np.diff(pairs[order]) == 0)
    if not len(again):
        return
    second = int(order[again + 1].min())
    names = " -> ".join(hosts[ends[second]].name for ends in (rows.sources, rows.destinations))
    raise InputError(rows.place(second), f"another row for the pair {names}")


def _refuse_long(rows: PairRows, options: Options) -> None:
    most = LARGEST_DELAY_MS * (2 if options.times == "rtt" else 1)
    times_ms = np.asarray(rows.times_ms)
    if times_ms.max() > most:
        found = int(times_ms.argmax())
        raise InputError(rows.place(found), f"expected a time in ms, at most {most:,}, got {times_ms[found]:g}")


def _kept(
    time_ms: Matrix, hosts: Sequence[Host], options: Options, place: str
) -> tuple[npt.NDArray[np.intp], list[str]]:
    """Return the hosts that stay, and what to say of the others."""
    if options.missing != "drop":
        return np.arange(len(hosts)), []
    kept = complete_hosts(time_ms)
    if len(kept) < 2:
        raise InputError(place, "no two hosts stay if hosts with missing pairs are dropped")
    dropped = [hosts[number].name for number in np.setdiff1d(np.arange(len(hosts)), kept)]
    shown = ", ".join(dropped[:5]) + (", ..." if len(dropped) > 5 else "")
    return kept, [f"dropped: {len(dropped)} hosts with missing pairs ({shown})"] if dropped else []


def _complete(
    names: Sequence[str], time_ms: Matrix, deviation_ms: Matrix, loss_ratio: Matrix, options: Options, place: str
) -> Filled:
    missing = missing_pairs(time_ms)
    if options.missing == "refuse" and missing.any():
        first = " -> ".join(names[end] for end in np.argwhere(missing)[0])
        size = len(names)
        raise InputError(
            place,
            f"{int(missing.sum())} of {size * size - size} directed pairs have no time, such as {first}; "
            'set missing = "reverse", "relay", "path" or "drop"',
        )
    try:
        return fill(names, time_ms, deviation_ms, loss_ratio, ESTIMATES.get(options.missing))
    except InputError as error:
        raise InputError(place, f"{error.place}: {error.problem}") from None
