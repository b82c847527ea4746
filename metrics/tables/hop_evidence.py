"""Find what checks, summary and report need of all hops: tasks evaluate parts of the table, and results are added up.

Counts are added; quantiles are exact (``metrics.tables.runs``). A part has whole streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import of_nodes, read_adversaries
from metrics.asked import find_asked
from metrics.changes import PairChanges
from metrics.checks.accounts import NODE_DELAY
from metrics.checks.evidence import FrameSets, LateCounts, Outcome, Spread
from metrics.checks.machine import RECEIVE_P99
from metrics.executors import Executor
from metrics.measures.measure import Values
from metrics.pcap.walk import Bools, Ints
from metrics.recorded.stalls import Late, Stalls
from metrics.rundir import RunDir
from metrics.rundir.files import table_file
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.churn import Ending, excuse_unread
from metrics.tables.columns import Column, Groups, conform, group_rows, numbers, of_whole_traces, valid
from metrics.tables.condensed import INSTANTS
from metrics.tables.halts import excuse_halted
from metrics.tables.hops import HOPS
from metrics.tables.runs import SortedRun, SortedRuns, write_run
from metrics.tables.tallies import Tally, add_counts, add_outcomes, add_tallies, tally
from metrics.tables.tcp_waits import tcp_waits
from metrics.totals import FrameCounts, HopTotals

_SEND, _TX, _RX, _READ = INSTANTS.values()
_STEPS = ((_SEND, _TX), (_TX, _RX), (_RX, _READ), (_SEND, _READ))
_KEPT = {"send_ms": ("d_sndbuf_ns", 1e6), "wire_ms": ("d_wire_ns", 1e6), "receive_ms": ("d_rcv_ns", 1e6)}
_KEPT |= {"asked_ms": ("asked_delay_ms", 1.0)}
"""The distributions of all hops: the column of each, and the divisor of its values."""

_STREAM = ("conn", "direction", "incarnation")
CUT: Final = pa.schema([HOPS.field(name) for name in (*_STREAM, "off")])
"""A stream that ended early because a node ended: frames from this offset on may be lost."""

_COLUMNS = (*_STREAM, "off", *INSTANTS.values(), "src_node", "dst_node", "asked_delay_ms")
_COLUMNS += ("tap_tx_last_ns", "d_sndbuf_ns", "d_wire_ns", "d_rcv_ns", "kind", "len_bytes", "n_retx")


@dataclass(frozen=True)
class Circumstances:
    """What is needed to judge the hops of a run."""

    machines: tuple[str, ...]  # the machine of each node
    errors_ns: tuple[int, ...]  # the error of each node's clock
    judged_ns: tuple[int, int]  # the span in which hosts are judged
    stalls: Stalls
    incomplete: tuple[
        int, ...
    ]  # nodes whose trace is missing or cut off; hops that are theirs, or may be theirs, do not count
    endings: tuple[Ending, ...]  # endings of nodes: frames lost with them do not count for completeness either
    pairs: Place | None  # what was asked of every directed pair, for ``find_asked``; None = nothing was
    changes: PairChanges  # changes of pairs of nodes: frames that they explain do not count either
    adversaries: frozenset[int]
    workload_ns: tuple[int, int]  # from the first to the last ns of the workload

    @classmethod
    def of(
        cls,
        run: RunDir,
        incomplete: Sequence[int] = (),
        endings: Sequence[Ending] = (),
        pairs: Place | None = None,
    ) -> Self:
        """Read the circumstances of a run from its directory.

        Args:
            run: the run directory.
            incomplete: nodes whose trace is missing or cut off.
            endings: the endings of nodes.
            pairs: the folder of ``metrics.asked.stage_asked``; None = nothing was asked.
        """
        places = sorted(run.plan.placement, key=lambda place: place.node)
        clocks, workload = run.clocks, run.phase("workload")
        return cls(
            machines=tuple(place.machine for place in places),
            errors_ns=tuple(clocks[place.node].error_ns if place.node in clocks else 0 for place in places),
            judged_ns=run.judged_ns,
            stalls=run.stalls,
            incomplete=tuple(incomplete),
            endings=tuple(endings),
            pairs=pairs,
            changes=PairChanges.of_nodes(run),
            adversaries=read_adversaries(run),
            workload_ns=(0, -1) if workload is None else (workload.start_ns, workload.end_ns - 1),
        )


@dataclass(frozen=True)
class Weighed:
    """What a task finds in its part of the table."""

    order: Outcome
    clocks: Outcome
    frames: Outcome
    hops: int  # the hops that count for completeness
    unmatched: dict[str, int]
    late: dict[str, Late]  # late samples of the runs that checks judge
    runs: dict[str, SortedRun]  # ``send`` and ``receive`` in ns, and the runs of ``_KEPT``
    sent: Tally[FrameCounts]  # see ``HopTotals``
    node_sends: Tally[LateCounts]  # see ``metrics.checks.evidence.Evidence``
    node_receives: Tally[LateCounts]  # likewise
    cut: pa.Table  # ``CUT``


class HopEvidence(NamedTuple):
    """The parts of ``metrics.checks.evidence.Evidence`` that are about hops."""

    order: Outcome  # comparisons of consecutive instants of a hop
    clocks: Outcome  # hops between machines
    frames: Outcome
    frame_sets: FrameSets
    send: Spread  # inside the sending host
    receive: Spread  # inside the receiving host
    node_sends: Tally[LateCounts]
    node_receives: Tally[LateCounts]
    cut: pa.Table  # ``CUT``
    totals: HopTotals


def weigh_hops(executor: Executor, run: RunDir, circumstances: Circumstances, folder: Place) -> HopEvidence:
    """Judge the table ``hops``, one part per task.

    Args:
        executor: runs the tasks.
        run: the run directory, with the table.
        circumstances: what is needed to judge the hops.
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
        node_sends=add_tallies(each.node_sends for each in weighed),
        node_receives=add_tallies(each.node_receives for each in weighed),
        cut=pa.concat_tables(each.cut for each in weighed),
        totals=HopTotals(
            judged_send_ms=runs["send"].distribution(1e6),
            judged_receive_ms=runs["receive"].distribution(1e6),
            sent=add_tallies(each.sent for each in weighed),
            **{name: runs[name].distribution(unit) for name, (_, unit) in _KEPT.items()},
        ),
    )


def find_least_wire(executor: Executor, hops: Place) -> dict[tuple[int, int], int]:
    """Find the shortest delay of a frame on the wire by its sender and its receiver, in ns.

    Args:
        executor: runs one task per part.
        hops: the table.
    """
    least: dict[tuple[int, int], int] = {}
    parts: list[Place] = sorted(hops.glob("*.parquet"))
    for found in executor.map(_find_least, parts):
        for ends, delay_ns in found.items():
            least[ends] = min(delay_ns, least.get(ends, delay_ns))
    return least


def _find_least(part: Place) -> dict[tuple[int, int], int]:
    rows = read_parquet(part, columns=["src_node", "dst_node", "d_wire_ns"]).drop_null()
    least = rows.group_by(["src_node", "dst_node"]).aggregate([("d_wire_ns", "min")])
    columns = (least[name].to_pylist() for name in ("src_node", "dst_node", "d_wire_ns_min"))
    return {(src, dst): delay_ns for src, dst, delay_ns in zip(*columns, strict=True)}


def _weigh_part(circumstances: Circumstances, folder: Place, part: Place) -> Weighed:
    rows = read_parquet(part, columns=list(_COLUMNS))
    values, late = _measure(circumstances, rows)
    values |= {name: rows[column].drop_null().to_numpy() for name, (column, _) in _KEPT.items()}
    order, clocks = _order(circumstances, rows)
    frames, sets, cut = _completeness(circumstances, rows)
    runs = {name: write_run(folder / f"{name}-{part.stem}.npy", each) for name, each in values.items()}
    sent = _count_sent(circumstances, rows)
    by_node = _late_by_node(circumstances, rows)
    return Weighed(order, clocks, frames, sets.tested, sets.unmatched, late, runs, sent, *by_node, cut)


def _late_by_node(circumstances: Circumstances, rows: pa.Table) -> tuple[Tally[LateCounts], Tally[LateCounts]]:
    """Count by sender and by receiver the frames of the judged span that were late inside its host.

    Frames that TCP held back say nothing about the sender's host, so they do not count. Nor do frames of paused peers.
    """
    judged = _between(rows[_SEND], circumstances.judged_ns)
    written, read = (judged & ~paused for paused in _of_paused(circumstances, rows))
    free = np.ones(len(rows), np.bool_) if circumstances.pairs is None else tcp_waits(rows, circumstances.pairs) == 0
    found = []
    for node, since, until, those in (("src_node", _SEND, _TX, written & free), ("dst_node", _RX, _READ, read)):
        inside = rows.select([node, since, until]).filter(pa.array(those)).drop_null()
        found.append(count_late(circumstances.stalls, *(numbers(inside[name]) for name in (node, since, until))))
    return found[0], found[1]


def count_late(stalls: Stalls, node: Ints, due_ns: Ints, came_ns: Ints) -> Tally[LateCounts]:
    """Count each node's samples, the samples later than ``NODE_DELAY``, and those that stalls of the host explain.

    Args:
        stalls: the stalls of the run.
        node: (n,) the node of each sample.
        due_ns: (n,) when each sample was due.
        came_ns: (n,) when it came.
    """
    late = came_ns - due_ns > NODE_DELAY.ns
    return tally(LateCounts, node, late, stalls.excuse(due_ns, came_ns, NODE_DELAY.ns))


def _count_sent(circumstances: Circumstances, rows: pa.Table) -> Tally[FrameCounts]:
    """Count the frames that honest nodes sent in the workload, by kind."""
    honest = of_nodes(rows, "src_node", circumstances.adversaries, others=True)
    sent = honest.filter(pa.array(_between(honest[_SEND], circumstances.workload_ns)))
    return tally(FrameCounts, numbers(sent["kind"], -1), numbers(sent["len_bytes"]))


def _order(circumstances: Circumstances, rows: pa.Table) -> tuple[Outcome, Outcome]:
    """Compare consecutive instants of each hop, and judge the hops between machines.

    Between machines, an instant may seem to come earlier by as much as the error of their clocks.
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
    """Return how far hops' delays may be wrong: between machines the sum of the clocks' errors, within one nothing."""
    errors = np.array(circumstances.errors_ns)
    if not errors.any():
        return np.zeros(len(rows), np.int64)
    machines = np.array(circumstances.machines)
    src, dst = numbers(rows["src_node"]), numbers(rows["dst_node"])
    apart = valid(rows["src_node"], rows["dst_node"]) & (machines[src] != machines[dst])
    return np.where(apart, errors[src] + errors[dst], 0)


def _completeness(circumstances: Circumstances, rows: pa.Table) -> tuple[Outcome, FrameSets, pa.Table]:
    """Find which hops lack which of the four instants, and the streams that ended early (``CUT``)."""
    excused = _excused_unread(circumstances, rows)
    cut = rows.filter(pa.array(excused))
    group, streams = group_rows(cut, *_STREAM)
    cut = conform(
        {name: streams[name] for name in _STREAM} | {"off": Groups(group, len(streams)).least(cut["off"])}, CUT
    )
    rows = of_whole_traces(rows.filter(pa.array(~excused)), circumstances.incomplete)
    sent, left, came, read = (valid(rows[name]) for name in INSTANTS.values())
    unmatched = {
        "sent by a trace but not on the wire": _count(sent & ~left),
        "read by a trace but not on the wire": _count(read & ~came),
        "arrived on the wire but read by no trace": _count(came & ~read),
        "on the wire but sent by no trace": _count(left & ~sent),
        "read but never sent": _count(read & ~sent),
    }
    return Outcome(_count(sent), _count(sent & ~read)), FrameSets(len(rows), unmatched), cut


def _excused_unread(circumstances: Circumstances, rows: pa.Table) -> Bools:
    """Return which hops were sent and never read because a node ended, the network was cut, or a peer paused."""
    unread = valid(rows[_SEND]) & ~valid(rows[_READ])
    if not (circumstances.endings or circumstances.changes) or not unread.any():
        return np.zeros(len(rows), np.bool_)
    stream, streams = group_rows(rows, *_STREAM)
    of_stream = Groups(stream, len(streams))
    moving_ns = numbers(of_stream.most(rows[_READ]))[stream[unread]]
    read_off = numbers(of_stream.most(rows["off"], valid(rows[_READ])), -1)[stream[unread]]
    lost = rows.filter(pa.array(unread))
    there_ms, back_ms = lost["asked_delay_ms"], lost["asked_delay_ms"]
    if circumstances.pairs is not None:
        back_ms = find_asked(circumstances.pairs, "delay_ms", lost["dst_node"], lost["src_node"], lost[_SEND])
    trip_ms = (pc.fill_null(each, 0.0).to_numpy() for each in (there_ms, back_ms))
    trip_ns = (sum(trip_ms) * 1e6).astype(np.int64)
    of_lost = lost, moving_ns, read_off, trip_ns
    unread[unread] = excuse_unread(*of_lost, circumstances.endings) | excuse_halted(*of_lost, circumstances.changes)
    return unread


def _measure(circumstances: Circumstances, rows: pa.Table) -> tuple[dict[str, Values], dict[str, Late]]:
    """Return the values of each run, and those beyond its limit, without frames that paused peers wrote or read."""
    judged = _between(rows[_SEND], circumstances.judged_ns)
    written, read = (rows.filter(pa.array(judged & ~paused)) for paused in _of_paused(circumstances, rows))
    came = read.select([_RX, _READ]).drop_null()
    values: dict[str, Values] = {
        "send": numbers(written["d_sndbuf_ns"].drop_null()),
        "receive": numbers(read["d_rcv_ns"].drop_null()),
    }
    late = {
        "send": Late(0, 0),
        "receive": circumstances.stalls.tally(numbers(came[_RX]), numbers(came[_READ]), RECEIVE_P99.ns),
    }
    return values, late


def _of_paused(circumstances: Circumstances, rows: pa.Table) -> tuple[Bools, Bools]:
    """Return which frames were in their sender's host, and which in their receiver's, while its peer was paused."""
    spans = (("src_node", _SEND, _TX), ("dst_node", _RX, _READ))
    found = [circumstances.changes.paused(*(numbers(rows[name], -1) for name in span)) for span in spans]
    return found[0], found[1]


def spread_runs(runs: SortedRuns, late: Late, per_ms: float = 1.0) -> Spread:
    """Return the quantiles that the checks judge.

    Args:
        runs: the values.
        late: the values beyond the limit of the check.
        per_ms: how many units of the values are a millisecond.
    """
    p50, p99, largest = (runs.quantile(share) / per_ms for share in (0.5, 0.99, 1.0))
    return Spread(runs.count, p50, p99, largest, late)


def _between(instants_ns: Column, span_ns: tuple[int, int]) -> Bools:
    since_ns, until_ns = span_ns
    values = numbers(instants_ns)
    inside: Bools = valid(instants_ns) & (since_ns <= values) & (values <= until_ns)
    return inside


def _count(found: Bools) -> int:
    return int(np.count_nonzero(found))
