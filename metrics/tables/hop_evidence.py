"""The few numbers over all hops that the checks judge: exact ones, over whole columns that are read here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metrics.certificate import RECEIVE_P99_MS
from metrics.checks import JITTER_SIGMAS
from metrics.pcap.walk import Bools, Ints
from metrics.rundir import RunDir
from metrics.tables.columns import Column, group_rows, numbers, of_whole_traces, outside, quantile, read_columns, valid
from metrics.tables.condensed import INSTANTS
from peer.core.frames import Data

_SEND, _TX, _RX, _READ = INSTANTS.values()
_HUNDRED = 100
_STEPS = ((_SEND, _TX), (_TX, _RX), (_RX, _READ), (_SEND, _READ))


def order(run: RunDir) -> dict[str, Any]:
    """Comparisons of consecutive instants of a hop, how many are the wrong way round, and by how much at most.

    Between machines an instant may seem to come earlier by as much as their clocks are unsure; of such hops also how
    many there are, and how many took no longer than that.
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
    return {
        "order_tested": tested,
        "order_failed": failed,
        "order_worst_ns": worst_ns,
        "unsure_tested": _count(apart),
        "unsure_unresolved": _count(apart & (numbers(rows[_READ]) - numbers(rows[_SEND]) <= unsure_ns)),
        "unsure_ns": int(unsure_ns.max(initial=0)),
    }


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


def completeness(run: RunDir, incomplete: list[int], broken: pa.Array) -> dict[str, Any]:
    """Which of the four instants hops lack.

    Args:
        run: the run directory.
        incomplete: nodes whose trace is missing or cut off; hops that are theirs, or may be, do not count.
        broken: connections that a crash broke, whose hops do not count either.
    """
    rows = read_columns(run, "hops", *(["conn"] if len(broken) else []), "src_node", "dst_node", *INSTANTS.values())
    rows = of_whole_traces(outside(broken, rows), incomplete)
    sent, left, came, read = (valid(rows[name]) for name in INSTANTS.values())
    return {
        "sets_tested": len(rows),
        "sent_unseen": _count(sent & ~left),
        "read_unseen": _count(read & ~came),
        "seen_unsent": _count(left & ~sent),
        "read_unsent": _count(read & ~sent),
        "frames_sent": _count(sent),
        "frames_unread": _count(sent & ~read),
    }


def copies(run: RunDir) -> dict[str, Any]:
    """Times that frames sent in the judged span spent inside hosts, and copies by what they were good for."""
    rows = read_columns(
        run, "hops", _SEND, _RX, _READ, "d_rcv_ns", "d_sndbuf_ns", "kind", "is_dup", "is_relay", "n_retx"
    )
    judged = rows.filter(pa.array(_between(rows[_SEND], run.judged_ns)))
    inside_ms = {
        name: judged[column].drop_null().to_numpy() / 1e6
        for name, column in (("receive", "d_rcv_ns"), ("send", "d_sndbuf_ns"))
    }
    came = judged.select([_RX, _READ]).drop_null()
    limit_ns = round(RECEIVE_P99_MS * 1e6)
    late, explained = run.stalls.tally(numbers(came[_RX]), numbers(came[_READ]), limit_ns)
    is_data = pc.fill_null(pc.equal(rows["kind"], Data.kind), fill_value=False)
    return {
        f"{name}_ms_p{percent}": quantile(values, percent / 100)
        for name, values in inside_ms.items()
        for percent in (50, 99)
    } | {
        "received": len(came),
        "receive_late": late,
        "receive_explained": explained,
        "copies": _true(pc.and_(is_data, pc.is_valid(rows["is_dup"]))),
        "duplicates": _true(rows["is_dup"]),
        "relayed": _true(rows["is_relay"]),
        "retransmitted_frames": _true(pc.greater(rows["n_retx"], 0)),
    }


def wire_errors(run: RunDir) -> dict[str, Any]:
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
    found: dict[str, Any] = {}
    for name, those in (("steady", steady), ("jittered", ~steady)):
        errors = excess_ms[those]
        found[f"{name}_late"] = _count(beyond[those])
        found[f"{name}_explained"] = _count((beyond & excused)[those])
        found[f"{name}_tested"] = len(errors)
        found[f"{name}_ms_p50"] = quantile(errors, 0.5)
        found[f"{name}_ms_p99"] = _p99(errors)
        found[f"{name}_ms_max"] = quantile(errors, 1)
    sigmas = deviation_ms[~steady] / jitter_ms[~steady]
    return found | {"jitter_sigmas_std": float(sigmas.std(ddof=1)) if len(sigmas) > 1 else None}


def _excused(run: RunDir, rows: pa.Table, limit_ms: float) -> Bools:
    """Which hops the plane wrote later than the limit because of stalls of the host; it had read them before."""
    plausible_ms = rows["asked_delay_ms"].to_numpy() + JITTER_SIGMAS * rows["asked_jitter_ms"].to_numpy()
    due_ns = numbers(rows["tap_tx_last_ns"]) + (plausible_ms * 1e6).astype(np.int64)
    return run.stalls.excuse(due_ns, numbers(rows[_RX]), round(limit_ms * 1e6))


def _p99(errors: npt.NDArray[np.float64]) -> float | None:
    """The 99th percentile; of fewer than a hundred the second largest, since one hop is more than one in a hundred."""
    return float(np.partition(errors, -2)[-2]) if 1 < len(errors) < _HUNDRED else quantile(errors, 0.99)


def _between(instants_ns: Column, span_ns: tuple[int, int]) -> Bools:
    since_ns, until_ns = span_ns
    values = numbers(instants_ns)
    inside: Bools = valid(instants_ns) & (since_ns <= values) & (values <= until_ns)
    return inside


def _count(found: Bools) -> int:
    return int(np.count_nonzero(found))


def _true(found: Column) -> int:
    return pc.sum(found).as_py() or 0
