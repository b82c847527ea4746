"""What checks, summary and report ask of all hops: a task weighs each part of the table, and what they say is added up.

Counts add up; quantiles are exact (``metrics.tables.runs``). A part has whole streams.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.adversaries import of_nodes, read_adversaries
from metrics.checks.evidence import FrameSets, Outcome, Spread, WireErrors
from metrics.checks.machine import RECEIVE_P99
from metrics.executors import Executor
from metrics.measures.measure import Values
from metrics.pcap.walk import Bools, Ints
from metrics.probing import JITTER_SIGMAS
from metrics.rundir import RunDir
from metrics.rundir.files import table_file
from metrics.stalls import Late, Stalls
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.columns import Column, group_rows, numbers, of_whole_traces, outside, valid
from metrics.tables.condensed import INSTANTS
from metrics.tables.runs import SortedRun, SortedRuns, write_run
from metrics.tables.tallies import Tally, add_counts, add_tallies, tally
from metrics.totals import FrameCounts, HopTotals

_SEND, _TX, _RX, _READ = INSTANTS.values()
_HUNDRED = 100
_STEPS = ((_SEND, _TX), (_TX, _RX), (_RX, _READ), (_SEND, _READ))
_KEPT = {"send_ms": ("d_sndbuf_ns", 1e6), "wire_ms": ("d_wire_ns", 1e6), "receive_ms": ("d_rcv_ns", 1e6)}
_KEPT |= {"asked_ms": ("asked_delay_ms", 1.0)}
"""The distributions of all hops, their column, and by what its values are divided."""

_STREAM = ("conn", "direction", "incarnation")
_COLUMNS = (*_STREAM, *INSTANTS.values(), "src_node", "dst_node", "tap_tx_last_ns", "asked_delay_ms", "asked_jitter_ms")
_COLUMNS += ("n_retx", "d_sndbuf_ns", "d_wire_ns", "d_rcv_ns", "kind", "len_bytes")


@dataclass(frozen=True)
class Circumstances:
    """By what the hops of a run are judged."""

    machines: tuple[str, ...]  # of each node
    errors_ns: tuple[int, ...]  # of each node's clock
    judged_ns: tuple[int, int]  # the span in which hosts are judged
    stalls: Stalls
    limit_ms: float  # ``verdict.wire_error_p99_ms``
    rated: tuple[int, ...]  # nodes whose hosts have an access rate
    incomplete: tuple[
        int, ...
    ]  # nodes whose trace is missing or cut off; hops that are theirs, or may be, do not count
    broken: tuple[str, ...]  # connections that a crash broke, whose hops do not count for completeness either
    adversaries: frozenset[int]
    workload_ns: tuple[int, int]  # from the first to the last ns of the workload

    @classmethod
    def of(cls, run: RunDir, incomplete: Sequence[int] = (), broken: Iterable[str] = ()) -> Self:
        """Read them from a run directory."""
        places = sorted(run.plan.placement, key=lambda place: place.node)
        clocks, rates, workload = run.clocks, run.underlay.rate_mbit, run.phase("workload")
        return cls(
            machines=tuple(place.machine for place in places),
            errors_ns=tuple(clocks[place.node].error_ns if place.node in clocks else 0 for place in places),
            judged_ns=run.judged_ns,
            stalls=run.stalls,
            limit_ms=float(run.experiment["verdict"]["wire_error_p99_ms"]),
            rated=tuple(run.nodes_by_host[host] for host in range(run.underlay.size) if rates[host] > 0),
            incomplete=tuple(incomplete),
            broken=tuple(broken),
            adversaries=read_adversaries(run),
            workload_ns=(0, -1) if workload is None else (workload.start_ns, workload.end_ns - 1),
        )


@dataclass(frozen=True)
class Moments:
    """How many values there are, their mean, and the sum of the squares of what they differ from it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Self:
        if not len(values):
            return cls()
        mean = float(values.mean())
        return cls(len(values), mean, float(np.square(values - mean).sum()))

    def __add__(self, other: "Moments") -> "Moments":
        """Of both together (Chan, Golub, LeVeque 1979)."""
        count = self.count + other.count
        if not count:
            return self
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * self.count * other.count / count
        return Moments(count, self.mean + apart * other.count / count, squares)

    @property
    def std(self) -> float | None:
        """The standard deviation of the sample; None of fewer than two."""
        return float(np.sqrt(self.squares / (self.count - 1))) if self.count > 1 else None


@dataclass(frozen=True)
class Weighed:
    """What a task says of its part."""

    order: Outcome
    clocks: Outcome
    frames: Outcome
    hops: int  # that count for completeness
    unmatched: dict[str, int]
    late: dict[str, Late]  # of the runs that checks judge
    sigmas: Moments  # deviations of the wire delay / jitter asked for
    runs: dict[str, SortedRun]  # ``send`` and ``receive`` in ns, ``steady`` and ``jittered`` in ms, those of ``_KEPT``
    sent: Tally[FrameCounts]  # see ``HopTotals``


class HopEvidence(NamedTuple):
    """The parts of ``metrics.checks.evidence.Evidence`` that are about hops."""

    order: Outcome  # comparisons of consecutive instants of a hop
    clocks: Outcome  # hops between machines
    frames: Outcome
    frame_sets: FrameSets
    send: Spread  # inside the sending host
    receive: Spread  # inside the receiving host
    wire: WireErrors
    totals: HopTotals


def weigh_hops(executor: Executor, run: RunDir, circumstances: Circumstances, folder: Place) -> HopEvidence:
    """Judge the table ``hops``, each part by a task.

    Args:
        executor: runs the tasks.
        run: the run directory, with the table.
        circumstances: see there.
        folder: where the tasks write the sorted values; all workers see it.
    """
    folder.mkdir()
    parts = sorted((run.tables / table_file("hops")).glob("*.parquet"))
    weighed = executor.map(partial(_weigh_part, circumstances, folder), parts)
    runs = {name: SortedRuns(each.runs[name] for each in weighed) for name in weighed[0].runs}
    late = {name: Late(*add_counts(*(each.late[name] for each in weighed))) for name in weighed[0].late}
    unmatched = [each.unmatched for each in weighed]
    return HopEvidence(
        order=add_outcomes([each.order for each in weighed]),
        clocks=add_outcomes([each.clocks for each in weighed]),
        frames=add_outcomes([each.frames for each in weighed]),
        frame_sets=FrameSets(
            sum(each.hops for each in weighed), {name: sum(each[name] for each in unmatched) for name in unmatched[0]}
        ),
        send=spread_runs(runs["send"], late["send"], 1e6),
        receive=spread_runs(runs["receive"], late["receive"], 1e6),
        wire=WireErrors(
            steady=_spread_few(runs["steady"], late["steady"]),
            jittered=_spread_few(runs["jittered"], late["jittered"]),
            jitter_sigmas_std=sum((each.sigmas for each in weighed), Moments()).std,
            limit_ms=circumstances.limit_ms,
        ),
        totals=HopTotals(
            judged_send_ms=runs["send"].distribution(1e6),
            judged_receive_ms=runs["receive"].distribution(1e6),
            sent=add_tallies(each.sent for each in weighed),
            **{name: runs[name].distribution(unit) for name, (_, unit) in _KEPT.items()},
        ),
    )


def add_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Of several tasks' comparisons."""
    worst = max(each.worst for each in outcomes)
    return Outcome(sum(each.tested for each in outcomes), sum(each.failed for each in outcomes), worst)


def _weigh_part(circumstances: Circumstances, folder: Place, part: Place) -> Weighed:
    rows = read_parquet(part, columns=list(_COLUMNS))
    values, late, sigmas = _measure(circumstances, rows)
    values |= {name: rows[column].drop_null().to_numpy() for name, (column, _) in _KEPT.items()}
    order, clocks = _order(circumstances, rows)
    frames, sets = _completeness(circumstances, rows)
    runs = {name: write_run(folder / f"{name}-{part.stem}.npy", each) for name, each in values.items()}
    sent = _count_sent(circumstances, rows)
    return Weighed(order, clocks, frames, sets.tested, sets.unmatched, late, Moments.of(sigmas), runs, sent)


def _count_sent(circumstances: Circumstances, rows: pa.Table) -> Tally[FrameCounts]:
    """The frames that honest nodes sent in the workload, by kind."""
    honest = of_nodes(rows, "src_node", circumstances.adversaries, others=True)
    sent = honest.filter(pa.array(_between(honest[_SEND], circumstances.workload_ns)))
    return tally(FrameCounts, numbers(sent["kind"], -1), numbers(sent["len_bytes"]))


def _order(circumstances: Circumstances, rows: pa.Table) -> tuple[Outcome, Outcome]:
    """Comparisons of consecutive instants of a hop, and the hops between machines.

    Between machines an instant may seem to come earlier by as much as their clocks are unsure.
    """
    unsure_ns = _unsure_ns(circumstances, rows)
    tested = failed = worst_ns = 0
    for before, after in _STEPS:
        both = valid(rows[before], rows[after])
        early_ns = (numbers(rows[before]) - numbers(rows[after]) - unsure_ns)[both]
        tested += len(early_ns)
        failed += _count(early_ns > 0)
        worst_ns = max(worst_ns, int(early_ns.max(initial=0)))
    apart = valid(rows[_SEND], rows[_READ]) & (unsure_ns > 0)
    unresolved = apart & (numbers(rows[_READ]) - numbers(rows[_SEND]) <= unsure_ns)
    clocks = Outcome(_count(apart), _count(unresolved), int(unsure_ns.max(initial=0)))
    return Outcome(tested, failed, worst_ns), clocks


def _unsure_ns(circumstances: Circumstances, rows: pa.Table) -> Ints:
    """By how much a hop's delay may be wrong: between machines the sum of their clocks' errors, within one nothing."""
    errors = np.array(circumstances.errors_ns)
    if not errors.any():
        return np.zeros(len(rows), np.int64)
    machines = np.array(circumstances.machines)
    src, dst = numbers(rows["src_node"]), numbers(rows["dst_node"])
    apart = valid(rows["src_node"], rows["dst_node"]) & (machines[src] != machines[dst])
    return np.where(apart, errors[src] + errors[dst], 0)


def _completeness(circumstances: Circumstances, rows: pa.Table) -> tuple[Outcome, FrameSets]:
    """Which of the four instants hops lack."""
    rows = of_whole_traces(outside(pa.array(circumstances.broken, pa.string()), rows), circumstances.incomplete)
    sent, left, came, read = (valid(rows[name]) for name in INSTANTS.values())
    unmatched = {
        "sent by a trace but not on the wire": _count(sent & ~left),
        "read by a trace but not on the wire": _count(read & ~came),
        "on the wire but sent by no trace": _count(left & ~sent),
        "read but never sent": _count(read & ~sent),
    }
    return Outcome(_count(sent), _count(sent & ~read)), FrameSets(len(rows), unmatched)


def _measure(
    circumstances: Circumstances, rows: pa.Table
) -> tuple[dict[str, Values], dict[str, Late], npt.NDArray[np.float64]]:
    """The values of each run, those beyond its limit, and the deviations of the wire delay / jitter asked for."""
    judged = rows.filter(pa.array(_between(rows[_SEND], circumstances.judged_ns)))
    came = judged.select([_RX, _READ]).drop_null()
    values: dict[str, Values] = {
        "send": numbers(judged["d_sndbuf_ns"].drop_null()),
        "receive": numbers(judged["d_rcv_ns"].drop_null()),
    }
    late = {
        "send": Late(0, 0),
        "receive": circumstances.stalls.tally(numbers(came[_RX]), numbers(came[_READ]), RECEIVE_P99.ns),
    }
    rows = rows.filter(pa.array(_clean(circumstances, rows)))
    jitter_ms = rows["asked_jitter_ms"].to_numpy()
    deviation_ms = (numbers(rows[_RX]) - numbers(rows["tap_tx_last_ns"])) / 1e6 - rows["asked_delay_ms"].to_numpy()
    excess_ms = np.maximum(np.abs(deviation_ms) - JITTER_SIGMAS * jitter_ms, 0)
    limit_ns = round(circumstances.limit_ms * 1e6)
    beyond = np.rint(excess_ms * 1e6) > limit_ns
    excused = _excused(circumstances, rows, limit_ns)
    steady = jitter_ms == 0
    for name, those in (("steady", steady), ("jittered", ~steady)):
        values[name] = excess_ms[those]
        late[name] = Late(_count(beyond[those]), _count((beyond & excused)[those]))
    return values, late, deviation_ms[~steady] / jitter_ms[~steady]


def _clean(circumstances: Circumstances, rows: pa.Table) -> Bools:
    """Hops of the judged span whose wire part is the emulated delay alone.

    None was retransmitted on their stream, and neither end has an access rate. Of the last byte's passage |measured -
    asked| is an error, where there is jitter only what exceeds its plausible range.
    """
    group, _ = group_rows(rows, *_STREAM)
    resent = np.zeros(len(rows), np.bool_)  # by stream, of which there are no more than rows
    resent[group[numbers(rows["n_retx"]) > 0]] = True
    clean = ~resent[group] & _between(rows["tap_tx_last_ns"], circumstances.judged_ns)
    clean &= valid(rows[_RX], rows["asked_delay_ms"])
    rated = list(circumstances.rated)
    clean &= ~np.isin(numbers(rows["src_node"]), rated) & ~np.isin(numbers(rows["dst_node"]), rated)
    return clean


def _excused(circumstances: Circumstances, rows: pa.Table, limit_ns: int) -> Bools:
    """Which hops the plane wrote later than the limit because of stalls of the host; it had read them before."""
    plausible_ms = rows["asked_delay_ms"].to_numpy() + JITTER_SIGMAS * rows["asked_jitter_ms"].to_numpy()
    due_ns = numbers(rows["tap_tx_last_ns"]) + (plausible_ms * 1e6).astype(np.int64)
    return circumstances.stalls.excuse(due_ns, numbers(rows[_RX]), limit_ns)


def spread_runs(runs: SortedRuns, late: Late, per_ms: float = 1.0) -> Spread:
    """Return the quantiles that the checks judge; ``late``: the values beyond a limit."""
    p50, p99, largest = (runs.quantile(share) / per_ms for share in (0.5, 0.99, 1.0))
    return Spread(runs.count, p50, p99, largest, late)


def _spread_few(runs: SortedRuns, late: Late) -> Spread:
    """The p99 of fewer than a hundred is the second largest, since one hop is more than one in a hundred."""
    found = spread_runs(runs, late)
    if not 1 < runs.count < _HUNDRED:
        return found
    return Spread(found.samples, found.p50, runs.at_rank(runs.count - 2), found.max, late)


def _between(instants_ns: Column, span_ns: tuple[int, int]) -> Bools:
    since_ns, until_ns = span_ns
    values = numbers(instants_ns)
    inside: Bools = valid(instants_ns) & (since_ns <= values) & (values <= until_ns)
    return inside


def _count(found: Bools) -> int:
    return int(np.count_nonzero(found))
