"""Evaluate the rows of ``achieved.parquet``: the attempts that count, errors against limits, effects of stalls."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from metrics.asked import NOTHING_ASKED, Floats, RoundTrips, of_pairs
from metrics.changes import PairChanges
from metrics.measures.measure import quantile
from metrics.recorded.stalls import Bools, Ints, Late, Stalls
from metrics.rundir.files import ACHIEVED_FILE
from metrics.rundir.parquet import read_recorded
from metrics.rundir.phases import PHASES as PHASES
from metrics.storage import Place

JITTER_SIGMAS = 3.0
"""If jitter was asked for, a delay within this many standard deviations of the mean is not an error."""

QUANTILES = {"p50": 0.5, "p99": 0.99}
"""The quantiles of the pairs' RTT errors: each has its limits in the experiment's ``[verdict]``."""

PAIR_FACTOR = 3.0
"""In a sweep of the idle network, no error may exceed this many times the limit of the 99th percentile."""

MOST_ATTEMPTS = 3
"""The most attempts of a sweep, and of the introduction of hosts before the workload."""

_ACHIEVED: Final = pa.schema(
    [
        *(
            pa.field(name, pa.int64(), nullable=False)
            for name in ("src", "dst", "at_ns", "attempt", "sent", "received")
        ),
        *(pa.field(f"asked_{name}_ms", pa.float64(), nullable=False) for name in ("there", "rtt", "jitter")),
        pa.field("phase", pa.string(), nullable=False),
        pa.field("rtt_ms", pa.float64()),
        pa.field("rtt_at_ns", pa.int64()),
    ]
)
_LATER: Final = ("attempt", "asked_there_ms", "rtt_at_ns")
"""Columns that runs of earlier versions lack."""

_MS_NS = 1e6


class RttErrors(Struct, frozen=True):
    """A quantile of a sweep's RTT errors: |RTT - RTT asked for|, under jitter only what exceeds ``JITTER_SIGMAS``."""

    probes: int  # how many probes were answered
    of_limit: float  # the quantile of error / limit of each probe
    ms: float  # the quantile of the errors
    limit_ms: float  # a pair's limit is this ...
    limit_ratio: float  # ... or, if it is larger, this part of the RTT asked for
    late: Late  # probes whose error exceeds their limit; without cleared probes
    cleared: int = 0  # late probes of pairs whose packets the captures show in time


class Extreme(Struct, frozen=True):
    """The pair, or the host, with the largest error relative to its limit."""

    of_limit: float  # error / limit
    error_ms: float
    asked_ms: float  # RTT asked for; for a host the median of its pairs
    name: str  # for people
    late: Late = Late(0, 0)  # pairs with an error above ``PAIR_FACTOR`` times their limit; hosts above it


class Sweep(Struct, frozen=True):
    """The probes of a phase: every pair of an idle network's hosts, or random pairs during the workload."""

    errors: dict[str, RttErrors]  # by the name of the quantile (``QUANTILES``), over the last attempt of each pair
    jittered: bool  # whether jitter was asked for
    repeats: tuple[str, ...]  # what was probed again, one clause per attempt after the first
    sent: int  # probes of all attempts, of pairs for which no loss was asked
    received: int  # such probes that came back
    expected: int  # (pair, probe) rows, of which ``errors`` has the rows with answers
    hosts: int  # hosts with an answered probe
    worst_pair: Extreme
    worst_host: Extreme
    exposed: int = 0  # probes of the other pairs: loss was asked for, or queues that may be full
    exposed_lost: int = 0  # such probes that did not come back
    asked_loss_ratio: float = 0.0  # the largest loss asked for of a round trip
    queued: bool = False  # whether a probe may have waited in queues that were asked for


def without_changes(rows: pa.Table, changes: PairChanges) -> pa.Table:
    """Return the probes of ``achieved.parquet`` that met no fault of their pair on their way.

    A probe may take the time asked for its round trip, and one more second for what a fault adds.
    """
    if not changes:
        return rows
    at_ns = rows["at_ns"].to_numpy()
    until_ns = at_ns + (rows["asked_rtt_ms"].to_numpy() * _MS_NS).astype(np.int64) + 1_000_000_000
    met = changes.meet(rows["src"].to_numpy(), rows["dst"].to_numpy(), at_ns, until_ns, which="links")
    return rows.filter(pa.array(~met))


def measure_sweep(
    rows: pa.Table,
    limits: Mapping[str, Any],
    stalls: Stalls,
    asked: RoundTrips = NOTHING_ASKED,
    in_time: Bools | None = None,
    pairs: int | None = None,
) -> Sweep:
    """Measure what the checks judge of a phase's probes.

    Args:
        rows: the rows of the phase in ``achieved.parquet``, all attempts.
        limits: the experiment's ``[verdict]``.
        stalls: the stalls of the run.
        asked: what was asked of round trips, besides their delays. The time that queues may add is not an error.
        in_time: (n, n) pairs of hosts whose packets the captures show in time; their probes cannot be late. None = no
            such pair is known.
        pairs: how many pairs should have been probed; None = as many as were.
    """
    latest = last_attempts(rows)
    answered = latest.filter(pc.is_valid(latest["rtt_ms"]))
    asked_ms = answered["asked_rtt_ms"].to_numpy()
    tolerance_ms = JITTER_SIGMAS * answered["asked_jitter_ms"].to_numpy()
    _, queue_ms = asked.of_pairs(answered)
    more_ms = answered["rtt_ms"].to_numpy() - asked_ms
    error_ms = np.maximum(np.maximum(more_ms - queue_ms, -more_ms) - tolerance_ms, 0)
    latest_ms = tolerance_ms + queue_ms  # how much later than asked for an answer may come
    accused = np.ones(len(answered), np.bool_) if in_time is None else ~_are_in_time(answered, in_time)
    errors = {}
    for name, share in QUANTILES.items():
        limit_ms = limits_ms(asked_ms, name, limits)
        late, excused = error_ms > limit_ms, explained(answered, limit_ms + latest_ms, stalls)
        counted = Late(int((late & accused).sum()), int((excused & accused).sum()))
        of_limit, ms = (quantile(values, share) or 0.0 for values in (error_ms / limit_ms, error_ms))
        given = limits[f"rtt_error_{name}_ms"], limits[f"rtt_error_{name}_ratio"]
        errors[name] = RttErrors(len(error_ms), of_limit, ms, *given, counted, int((late & ~accused).sum()))
    loss_ratio, queues_ms = asked.of_pairs(rows)
    exposed = (loss_ratio > 0) | (queues_ms > 0)
    sent, received = (rows[name].to_numpy() for name in ("sent", "received"))
    return Sweep(
        errors,
        bool(tolerance_ms.any()),
        tuple(repeats(rows)),
        int(sent[~exposed].sum()),
        int(received[~exposed].sum()),
        len(latest) if pairs is None else pairs,
        len(_ends(answered)),
        _worst_pair(answered, error_ms, latest_ms, limits, stalls),
        _worst_host(answered, error_ms, latest_ms, limits, stalls),
        exposed=int(sent[exposed].sum()),
        exposed_lost=int((sent - received)[exposed].sum()),
        asked_loss_ratio=float(loss_ratio.max(initial=0.0)),
        queued=bool(queues_ms.any()),
    )


def _are_in_time(probes: pa.Table, in_time: Bools) -> Bools:
    """Return which probes are of pairs with packets in time, both ways; none for hosts that the run does not have."""
    return of_pairs(probes, in_time & in_time.T, absent=False)


def _worst_pair(
    answered: pa.Table, error_ms: Floats, latest_ms: Floats, limits: Mapping[str, Any], stalls: Stalls
) -> Extreme:
    """Return the pair with the largest error relative to its p99 limit."""
    if not len(error_ms):
        return Extreme(0.0, 0.0, 0.0, "none")
    asked_ms = answered["asked_rtt_ms"].to_numpy()
    limit_ms = limits_ms(asked_ms, "p99", limits)
    beyond = error_ms > PAIR_FACTOR * limit_ms
    excused = explained(answered, PAIR_FACTOR * limit_ms + latest_ms, stalls)
    worst = int((error_ms / limit_ms).argmax())
    src, dst = (answered[end][worst].as_py() for end in ("src", "dst"))
    late = Late(int(beyond.sum()), int((beyond & excused).sum()))
    found = float(error_ms[worst] / limit_ms[worst]), float(error_ms[worst]), float(asked_ms[worst])
    return Extreme(*found, f"host {src} to host {dst}", late)


def _worst_host(
    answered: pa.Table, error_ms: Floats, latest_ms: Floats, limits: Mapping[str, Any], stalls: Stalls
) -> Extreme:
    """Return the host with the largest median of its pairs' errors relative to their p50 limits, at either end.

    Stalls explain a host beyond its limit if it would be within the limit without the errors that stalls explain, as if
    these probes had been in time.
    """
    asked_ms = answered["asked_rtt_ms"].to_numpy()
    limit_ms = limits_ms(asked_ms, "p50", limits)
    ratio = error_ms / limit_ms
    rest = np.where(explained(answered, limit_ms + latest_ms, stalls), 0.0, ratio)
    src, dst = (answered[end].to_numpy() for end in ("src", "dst"))
    found, late = Extreme(0.0, 0.0, 0.0, "none"), []
    for host in _ends(answered).tolist():
        own = (src == host) | (dst == host)
        of_limit = float(np.median(ratio[own]))
        if of_limit > 1:
            late.append(float(np.median(rest[own])) <= 1)
        if of_limit >= found.of_limit:
            found = Extreme(of_limit, float(np.median(error_ms[own])), float(np.median(asked_ms[own])), f"host {host}")
    return replace(found, late=Late(len(late), sum(late)))


def _ends(probes: pa.Table) -> Ints:
    """Return the hosts at either end of some probes, ascending."""
    return np.unique([probes[end].to_numpy() for end in ("src", "dst")])


def rtt_errors_ms(probes: pa.Table) -> Floats:
    """Return |RTT - RTT asked for| of rows of ``achieved.parquet``, NaN for lost probes."""
    errors_ms: Floats = np.abs(probes["rtt_ms"].to_numpy() - probes["asked_rtt_ms"].to_numpy())
    return errors_ms


def read_achieved(run_dir: Place) -> pa.Table | None:
    """Read ``achieved.parquet``, None if there is none. Earlier versions had one attempt and no further columns."""
    path = run_dir / ACHIEVED_FILE
    if not path.exists():
        return None
    rows = read_recorded(path, _ACHIEVED, _LATER)
    earlier = {
        "attempt": pa.array(np.ones(rows.num_rows, np.int32)),
        "rtt_at_ns": rows["at_ns"],
        "asked_there_ms": pc.divide(rows["asked_rtt_ms"], 2.0),
    }
    for name, values in earlier.items():
        if name not in rows.column_names:
            rows = rows.append_column(name, values)
    return rows


def met_stall(at_ns: Ints, there_ms: Floats, rtt_ms: Floats, stalls: Stalls) -> Bools:
    """Return which probes were due at some point of their path while the host stalled.

    Args:
        at_ns: (...) sending instants.
        there_ms: (...) delay asked from the source to the destination.
        rtt_ms: (...) round trip asked.
        stalls: the stalls of the run.
    """
    due_ns = np.stack([at_ns, *(at_ns + (after_ms * _MS_NS).astype(np.int64) for after_ms in (there_ms, rtt_ms))])
    return np.asarray(stalls.explain(due_ns.ravel()).reshape(due_ns.shape).any(axis=0))


def explained(rows: pa.Table, limit_ms: Floats, stalls: Stalls) -> Bools:
    """Return which errors stalls explain: the probe met a stall, and without stalls it would be within the limit.

    Args:
        rows: (n,) rows of ``achieved.parquet``.
        limit_ms: (n,) limits of RTT - RTT asked.
        stalls: the stalls of the run.
    """
    names = {"rtt_at_ns": 0, "asked_there_ms": 0.0, "asked_rtt_ms": 0.0, "rtt_ms": np.nan}
    sent_ns, there_ms, asked_ms, rtt_ms = (rows[name].fill_null(none).to_numpy() for name, none in names.items())
    late = rtt_ms - asked_ms > limit_ms  # lost probes are not late
    received_ns = sent_ns + np.where(late, rtt_ms * _MS_NS, 0).astype(np.int64)
    rest_ms = rtt_ms - asked_ms - stalls.covered_ns(sent_ns, received_ns) / _MS_NS
    return np.asarray(late & (rest_ms <= limit_ms) & met_stall(sent_ns, there_ms, asked_ms, stalls))


def repeats(rows: pa.Table) -> list[str]:
    """Return what was probed again, one clause per attempt after the first. ``rows``: a phase's, as for a sweep."""
    counts = Counter(rows["attempt"].to_pylist())
    return [
        f"attempt {attempt} probed {pairs:,} pairs again whose errors stalls of the host explained"
        for attempt, pairs in sorted(counts.items())
        if attempt > 1
    ]


def limits_ms(asked_rtt_ms: Floats, name: str, limits: Mapping[str, Any]) -> Floats:
    """Return the limits of the errors' quantile ``name``, (n,), by the experiment's ``[verdict]``.

    Args:
        asked_rtt_ms: (n,) the round trips asked for.
        name: a key of ``QUANTILES``.
        limits: the experiment's ``[verdict]``.
    """
    return np.asarray(np.maximum(limits[f"rtt_error_{name}_ms"], limits[f"rtt_error_{name}_ratio"] * asked_rtt_ms))


def last_attempts(achieved: pa.Table) -> pa.Table:
    """Return the rows of ``achieved.parquet`` that count: the last attempt of pairs that a sweep probed again."""
    if achieved.num_rows == 0:
        return achieved
    phases, phase = np.unique(achieved["phase"].to_numpy(), return_inverse=True)
    keys = np.column_stack([phase, achieved["src"].to_numpy(), achieved["dst"].to_numpy()])
    order = np.lexsort((achieved["attempt"].to_numpy(), *keys.T))
    followed = np.append((np.diff(keys[order], axis=0) == 0).all(axis=1), False)
    sampled = phases[phase] == "during"  # random pairs, some of them several times
    counts = np.empty(len(order), bool)
    counts[order] = ~followed
    return achieved.filter(pa.array(counts | sampled))
