"""Numbers that show at a glance whether a matrix of delays is what its owner meant."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from topologies.model import Matrix


class Statistics(Struct, frozen=True):
    """Statistics over all pairs of different hosts.

    Attributes:
        median_rtt_ms: median round-trip time.
        largest_rtt_ms: the largest one.
        farthest: the numbers of the two hosts that it is between.
        zeros: directed pairs with a delay of 0.
        pairs: all directed pairs.
    """

    median_rtt_ms: float
    largest_rtt_ms: float
    farthest: tuple[int, int]
    zeros: int
    pairs: int


def rtt_statistics(delay_ms: Matrix) -> Statistics:
    """Return the statistics of (n, n) one-way delays with zeros on the diagonal; n is at least 2."""
    size = len(delay_ms)
    rtt_ms = delay_ms + delay_ms.T
    first, second = divmod(int(rtt_ms.argmax()), size)
    largest_rtt_ms = float(rtt_ms[first, second])
    apart = ~np.eye(size, dtype=bool)
    return Statistics(
        median_rtt_ms=float(np.median(rtt_ms[apart], overwrite_input=True)),
        largest_rtt_ms=largest_rtt_ms,
        farthest=(first, second),
        zeros=size * size - size - int(np.count_nonzero(delay_ms)),
        pairs=size * size - size,
    )


class Asymmetry(NamedTuple):
    """How much the two directions of a pair differ.

    Attributes:
        differing: pairs of which they do.
        pairs: all undirected pairs.
        median_ms: median difference of the one-way delays, over all pairs.
        largest_ms: the largest difference.
        median_ratio: median difference as a part of the slower direction, over all pairs.
        largest_ratio: the largest such part.
    """

    differing: int
    pairs: int
    median_ms: float
    largest_ms: float
    median_ratio: float
    largest_ratio: float


def asymmetry(delay_ms: Matrix) -> Asymmetry:
    """Return the asymmetry of (n, n) one-way delays."""
    size = len(delay_ms)
    gaps_ms, ratios = (np.empty(size * (size - 1) // 2) for _ in range(2))
    done = 0
    for number in range(size - 1):
        there_ms, back_ms = delay_ms[number, number + 1 :], delay_ms[number + 1 :, number]
        part = slice(done, done := done + len(there_ms))
        np.abs(there_ms - back_ms, out=gaps_ms[part])
        slower_ms = np.maximum(there_ms, back_ms)
        ratios[part] = np.divide(gaps_ms[part], slower_ms, out=np.zeros(len(slower_ms)), where=slower_ms > 0)
    largest_ms, largest_ratio = float(gaps_ms.max()), float(ratios.max())
    differing = int(np.count_nonzero(gaps_ms))
    medians = (float(np.median(values, overwrite_input=True)) for values in (gaps_ms, ratios))
    median_ms, median_ratio = medians
    return Asymmetry(differing, len(gaps_ms), median_ms, largest_ms, median_ratio, largest_ratio)


class Detours(NamedTuple):
    """How many directed pairs are slower than a detour over the best relay.

    Attributes:
        faster_ratio: part of the pairs of which a detour is faster.
        tenth_ratio: part of the pairs of which it is faster by more than a tenth.
        sources: the number of hosts whose pairs were looked at, as sources.
    """

    faster_ratio: float
    tenth_ratio: float
    sources: int


MOST_SUMS = 1_000_000_000
"""Limit on the sums of two delays that ``detours`` computes: a second or two."""

_BLOCK = 64


def detours(delay_ms: Matrix, most_sums: int = MOST_SUMS) -> Detours:
    """Return the share of faster detours in (n, n) one-way delays.

    With more than a thousand hosts not all n^3 sums are computed: only the pairs of some sources count, which are
    evenly spaced by number. A detour has to be faster by more than 1 ns.
    """
    size = len(delay_ms)
    count = min(size, max(1, most_sums // size**2))
    faster = tenth = 0
    block, best_ms, least_ms = np.empty((_BLOCK, size)), np.empty(size), np.empty(size)
    for source in np.linspace(0, size - 1, count).astype(int):
        direct_ms = delay_ms[source]
        best_ms[:] = direct_ms
        for first in range(0, size, _BLOCK):
            relays = slice(first, min(first + _BLOCK, size))
            sums = np.add(delay_ms[relays], direct_ms[relays, None], out=block[: relays.stop - first])
            np.minimum(best_ms, sums.min(axis=0, out=least_ms), out=best_ms)
        best_ms[source] = 0
        faster += int(np.count_nonzero(best_ms < direct_ms - 1e-6))
        tenth += int(np.count_nonzero(best_ms < 0.9 * direct_ms))
    pairs = count * (size - 1)
    return Detours(faster / pairs, tenth / pairs, count)


def typical_rtts(delay_ms: Matrix) -> npt.NDArray[np.float64]:
    """Return (n,) the median round-trip time of every host to the others."""
    size = len(delay_ms)
    others = np.arange(size)
    return np.array([np.median((delay_ms[number] + delay_ms[:, number])[others != number]) for number in range(size)])


def describe_delays(names: Sequence[str], delay_ms: Matrix) -> dict[str, str]:
    """Return sentences on one-way delays by topic: round-trip times, tails, asymmetry, detours, zeros."""
    found = rtt_statistics(delay_ms)
    first, second = (names[number] for number in found.farthest)
    typical_ms = typical_rtts(delay_ms)
    slowest = [int(number) for number in np.argsort(-typical_ms, kind="stable")[:3]]
    relative = np.full(len(names), np.inf)
    if found.median_rtt_ms:
        relative = typical_ms / found.median_rtt_ms
    tails = ", ".join(f"{names[number]} {typical_ms[number]:.1f} ms ({relative[number]:.1f}x)" for number in slowest)
    zeros = f"{found.zeros} of {found.pairs} directed pairs have a delay of 0 ms" if found.zeros else "none"
    return {
        "RTT": f"median {found.median_rtt_ms:.3f} ms, largest {found.largest_rtt_ms:.3f} ms ({first} - {second})",
        "tails": f"hosts with the largest median RTT (and its multiple of all pairs' median): {tails}",
        "asymmetry": _describe_asymmetry(asymmetry(delay_ms)),
        "detours": _describe_detours(detours(delay_ms), len(names)),
        "zeros": zeros,
    }


def _describe_asymmetry(found: Asymmetry) -> str:
    if not found.differing:
        return "none"
    return (
        f"{found.differing} of {found.pairs} pairs; the delays of the two directions differ by "
        f"{found.median_ms:.3f} ms ({found.median_ratio:.1%}) at the median and "
        f"{found.largest_ms:.3f} ms ({found.largest_ratio:.1%}) at most"
    )


def _describe_detours(found: Detours, hosts: int) -> str:
    sample = f" (pairs of {found.sources} sources)" if found.sources < hosts else ""
    return (
        f"{found.faster_ratio:.1%} of the directed pairs are slower than over the best relay, "
        f"{found.tenth_ratio:.1%} by more than a tenth{sample}"
    )
