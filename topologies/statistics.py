"""Numbers that show at a glance whether a matrix of delays is what its owner meant."""

from collections.abc import Sequence

import numpy as np
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


def describe_matrix(names: Sequence[str], delay_ms: Matrix) -> list[str]:
    """Return remarks on a matrix of one-way delays: round-trip times, asymmetry, zeros."""
    found = rtt_statistics(delay_ms)
    first, second = (names[number] for number in found.farthest)
    remarks = [f"RTT: median {found.median_rtt_ms:.3f} ms, largest {found.largest_rtt_ms:.3f} ms ({first} - {second})"]
    gaps_ms = np.abs(delay_ms - delay_ms.T)[np.triu_indices(len(names), 1)]
    differing = np.count_nonzero(gaps_ms)
    if differing:
        remarks.append(
            f"asymmetry: {differing} of {len(gaps_ms)} pairs; the delays of the two directions differ by "
            f"{np.median(gaps_ms):.3f} ms at the median and {gaps_ms.max():.3f} ms at most"
        )
    else:
        remarks.append("asymmetry: none")
    zeros = f"{found.zeros} of {found.pairs} directed pairs have a delay of 0 ms" if found.zeros else "none"
    return [*remarks, f"zeros: {zeros}"]
