"""The few numbers over all hops that the checks judge: exact ones, over whole columns that are read here."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import structs

from metrics.checks.evidence import FrameSets, Outcome, Spread, WireErrors
from metrics.checks.machine import RECEIVE_P99
from metrics.pcap.walk import Bools, Ints
from metrics.probing import JITTER_SIGMAS
from metrics.rundir import RunDir
from metrics.stalls import Late
from metrics.tables.columns import (
    Column,
    exact_quantile,
    group_rows,
    numbers,
    of_whole_traces,
    outside,
    read_columns,
    valid,
)
from metrics.tables.condensed import INSTANTS

_SEND, _TX, _RX, _READ = INSTANTS.values()
_HUNDRED = 100
_STEPS = ((_SEND, _TX), (_TX, _RX), (_RX, _READ), (_SEND, _READ))


def order(run: RunDir) -> tuple[Outcome, Outcome]:
    """Comparisons of consecutive instants of a hop, and the hops between machines.

    Between machines an instant may seem to come earlier by as much as their clocks are unsure.
    """
    rows = read_columns(run, "hops", "src_node", "dst_node", *INSTANTS.values())
    unsure_ns = _unsure_ns(run, rows)
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


def _unsure_ns(run: RunDir, rows: pa.Table) -> Ints:
    """By how much a hop's delay may be wrong: between machines the sum of their clocks' errors, within one nothing."""
    places = sorted(run.plan.placement, key=lambda place: place.node)
    errors = np.array([run.clocks[place.node].error_ns if place.node in run.clocks else 0 for place in places])
    if not errors.any():
        return np.zeros(len(rows), np.int64)
    machines = np.array([place.machine for place in places])
    src, dst = numbers(rows["src_node"]), numbers(rows["dst_node"])
    apart = valid(rows["src_node"], rows["dst_node"]) & (machines[src] != machines[dst])
    return np.where(apart, errors[src] + errors[dst], 0)


def completeness(run: RunDir, incomplete: list[int], broken: pa.Array) -> tuple[Outcome, FrameSets]:
    """Which of the four instants hops lack.

    Args:
        run: the run directory.
        incomplete: nodes whose trace is missing or cut off; hops that are theirs, or may be, do not count.
        broken: connections that a crash broke, whose hops do not count either.
    """
    rows = read_columns(run, "hops", *(["conn"] if len(broken) else []), "src_node", "dst_node", *INSTANTS.values())
    rows = of_whole_traces(outside(broken, rows), incomplete)
    sent, left, came, read = (valid(rows[name]) for name in INSTANTS.values())
    unmatched = {
        "sent by a trace but not on the wire": _count(sent & ~left),
        "read by a trace but not on the wire": _count(read & ~came),
        "on the wire but sent by no trace": _count(left & ~sent),
        "read but never sent": _count(read & ~sent),
    }
    return Outcome(_count(sent), _count(sent & ~read)), FrameSets(len(rows), unmatched)


def host_delays(run: RunDir) -> tuple[Spread, Spread]:
    """Times that frames sent in the judged span spent inside the sending and the receiving host."""
    rows = read_columns(run, "hops", _SEND, _RX, _READ, "d_rcv_ns", "d_sndbuf_ns")
    judged = rows.filter(pa.array(_between(rows[_SEND], run.judged_ns)))
    send_ms, receive_ms = (judged[column].drop_null().to_numpy() / 1e6 for column in ("d_sndbuf_ns", "d_rcv_ns"))
    came = judged.select([_RX, _READ]).drop_null()
    late = run.stalls.tally(numbers(came[_RX]), numbers(came[_READ]), RECEIVE_P99.ns)
    return spread(send_ms, Late(0, 0)), spread(receive_ms, late)


def wire_errors(run: RunDir) -> WireErrors:
    """Of the last byte's passage: |measured - asked|, where there is jitter only what exceeds its plausible range.

    Of hops of the judged span whose wire part is the emulated delay alone: none was retransmitted on their stream, and
    neither end has an access rate.
    """
    stream, last = ("conn", "direction", "incarnation"), "tap_tx_last_ns"
    rows = read_columns(
        run, "hops", *stream, "src_node", "dst_node", last, _RX, "asked_delay_ms", "asked_jitter_ms", "n_retx"
    )
    group, _ = group_rows(rows, *stream)
    resent = np.zeros(len(rows), np.bool_)  # by stream, of which there are no more than rows
    resent[group[numbers(rows["n_retx"]) > 0]] = True
    clean = ~resent[group] & _between(rows[last], run.judged_ns) & valid(rows[_RX], rows["asked_delay_ms"])
    rated = [run.nodes_by_host[host] for host in range(run.underlay.size) if run.underlay.rate_mbit[host] > 0]
    clean &= ~np.isin(numbers(rows["src_node"]), rated) & ~np.isin(numbers(rows["dst_node"]), rated)
    rows = rows.filter(pa.array(clean))
    jitter_ms = rows["asked_jitter_ms"].to_numpy()
    deviation_ms = (numbers(rows[_RX]) - numbers(rows[last])) / 1e6 - rows["asked_delay_ms"].to_numpy()
    steady = jitter_ms == 0
    excess_ms = np.maximum(np.abs(deviation_ms) - JITTER_SIGMAS * jitter_ms, 0)
    limit_ms = float(run.experiment["verdict"]["wire_error_p99_ms"])
    beyond = np.rint(excess_ms * 1e6) > round(limit_ms * 1e6)
    excused = _excused(run, rows, limit_ms)
    of_steady, of_jittered = (
        _spread_hops(excess_ms[those], Late(_count(beyond[those]), _count((beyond & excused)[those])))
        for those in (steady, ~steady)
    )
    sigmas = deviation_ms[~steady] / jitter_ms[~steady]
    sigmas_std = float(sigmas.std(ddof=1)) if len(sigmas) > 1 else None
    return WireErrors(of_steady, of_jittered, sigmas_std, limit_ms)


def _excused(run: RunDir, rows: pa.Table, limit_ms: float) -> Bools:
    """Which hops the plane wrote later than the limit because of stalls of the host; it had read them before."""
    plausible_ms = rows["asked_delay_ms"].to_numpy() + JITTER_SIGMAS * rows["asked_jitter_ms"].to_numpy()
    due_ns = numbers(rows["tap_tx_last_ns"]) + (plausible_ms * 1e6).astype(np.int64)
    return run.stalls.excuse(due_ns, numbers(rows[_RX]), round(limit_ms * 1e6))


def spread(values_ms: npt.NDArray[np.float64], late: Late) -> Spread:
    """Return the quantiles that the checks judge; ``late``: the values beyond a limit."""
    p50, p99, largest = (exact_quantile(values_ms, share) or 0.0 for share in (0.5, 0.99, 1.0))
    return Spread(len(values_ms), p50, p99, largest, late)


def _spread_hops(errors_ms: npt.NDArray[np.float64], late: Late) -> Spread:
    """The p99 of fewer than a hundred is the second largest, since one hop is more than one in a hundred."""
    found = spread(errors_ms, late)
    if not 1 < len(errors_ms) < _HUNDRED:
        return found
    return structs.replace(found, p99=float(np.partition(errors_ms, -2)[-2]))


def _between(instants_ns: Column, span_ns: tuple[int, int]) -> Bools:
    since_ns, until_ns = span_ns
    values = numbers(instants_ns)
    inside: Bools = valid(instants_ns) & (since_ns <= values) & (values <= until_ns)
    return inside


def _count(found: Bools) -> int:
    return int(np.count_nonzero(found))
