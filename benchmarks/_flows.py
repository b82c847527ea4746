"""How evenly TCP flows share a link: one rule for every network that carries them.

A flow's rate is counted at its receiver, interval by interval, as iperf3's server prints it. The beginning, in which
TCP looks for its part, is not counted. A flow's *error* is how far its rate is from an equal part, over that part.

TCP's sender makes its window smaller at each loss and larger until the next one. So the rate of a flow in a short time
is random even if the link treats all packets alike, and the error of its mean falls with the square root of the time.
That is why errors have an interval here, by the method of batch means.

Source: R. Jain et al., A quantitative measure of fairness and discrimination for resource allocation in shared computer
systems, DEC TR-301, 1984; A. Law, Simulation Modeling and Analysis, 9.5.3 (batch means).
"""

import re
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from metrics.intervals import LEVEL, interval

INTERVAL_S = 2
"""The length of an interval."""

SERVER = ("iperf3", "--server", "--one-off", "--forceflush", "--format", "k", "--interval", str(INTERVAL_S))
"""iperf3's server for one client. It prints a line per interval."""

LISTENS = "listening"
"""A word of the line that the server prints when it listens."""

BATCHES = 10
"""The parts of the counted time whose means give the interval. Each should last many times from loss to loss."""

CLOSE = 0.05
"""The largest error of a link that is shared evenly."""

_LINE = re.compile(r"^\[ *\d+\] +([\d.]+)-([\d.]+) +sec +[\d.]+ \w*Bytes +([\d.]+) Kbits/sec *$", re.MULTILINE)
"""A line of an interval that counts: those at the beginning end in "(omitted)", the sums in "sender", "receiver"."""

Matrix = npt.NDArray[np.float64]


def client(address: str, seconds: int, ignored_s: int) -> list[str]:
    """Return the command of a flow to an address, which is counted for some seconds after a beginning that is not.

    It lasts two intervals longer, since the server may cut the first one and the last one short.
    """
    lasts_s = seconds + 2 * INTERVAL_S
    return ["iperf3", "--client", address, "--time", str(lasts_s), "--omit", str(ignored_s), "--interval", "0"]


def read_rates(said: str, seconds: int) -> list[float]:
    """Return the rate (Mbit/s) of a flow in each counted interval.

    Args:
        said: the output of its server.
        seconds: how long it was counted; what is left of the last interval is not.

    Raises:
        ValueError: intervals are missing.
    """
    found = [
        float(kbit) / 1e3 for begin, end, kbit in _LINE.findall(said) if round(float(end) - float(begin)) == INTERVAL_S
    ]
    if len(found) < seconds // INTERVAL_S:
        raise ValueError(f"expected {seconds // INTERVAL_S} intervals, got {len(found)}: {said[-500:]}")
    return found[: seconds // INTERVAL_S]


def describe_shares(rates_mbit: Matrix) -> dict[str, float]:
    """Return how evenly flows have shared a link.

    * ``sum_mbit``: what they carried together.
    * ``jain``: Jain's index of their rates: 1 = equal, 1 / n = one of n flows got all.
    * ``worst_part_error``: the largest error of a flow; ``worst_half_width``: half the 95 % interval of that flow's
      error.
    * ``needed_s``: for how long flows must be counted so that, 19 times in 20, no error is above ``CLOSE``, if the
      link treats all packets alike: the time in which a flow's standard error falls to what the largest of n errors
      allows (Bonferroni's inequality).

    Args:
        rates_mbit: (flows, intervals); at least ``BATCHES`` intervals.
    """
    rates, error, flows = rates_mbit.mean(axis=1), _errors(rates_mbit), len(rates_mbit)
    batches = [_errors(batch) for batch in np.array_split(rates_mbit, BATCHES, axis=1)]
    worst = int(np.abs(error).argmax())
    standard_error = float(np.sqrt(np.var(batches, axis=0, ddof=1).mean() / BATCHES))
    allowed = CLOSE / NormalDist().inv_cdf(1 - (1 - LEVEL) / (2 * flows))
    return {
        "sum_mbit": float(rates.sum()),
        "jain": jain(rates),
        "worst_part_error": float(np.abs(error[worst])),
        "worst_half_width": interval([float(batch[worst]) for batch in batches]).half_width or 0.0,
        "needed_s": rates_mbit.shape[1] * INTERVAL_S * (standard_error / allowed) ** 2,
    }


def _errors(rates_mbit: Matrix) -> Matrix:
    """Return (flows,) errors over some intervals."""
    rates = rates_mbit.mean(axis=1)
    return np.asarray(rates / rates.mean() - 1)


def jain(rates: Matrix) -> float:
    """Return Jain's index of fairness."""
    return float(rates.sum() ** 2 / (len(rates) * (rates**2).sum()))


def describe_queueing(busy_ms: Sequence[float] | Matrix, idle_ms: float, full_ms: float) -> dict[str, float]:
    """Return how long the link's queue was, by round trips (ms; NaN = lost) less the one of the idle network.

    ``queueing_error`` is how far the 99th percentile is from the full queue, over that: for most of the time the queue
    is nearly full, and a single round trip may be late for other reasons.

    Args:
        busy_ms: round trips while flows shared the link.
        idle_ms: the round trip of the idle network.
        full_ms: the time to send a full queue.
    """
    p50_ms, p99_ms, max_ms = (float(np.nanquantile(busy_ms, share)) - idle_ms for share in (0.5, 0.99, 1))
    return {
        "queueing_p50_ms": p50_ms,
        "queueing_p99_ms": p99_ms,
        "queueing_max_ms": max_ms,
        "queueing_error": abs(p99_ms - full_ms) / full_ms,
    }
