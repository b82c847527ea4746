"""``summary.json``: the verdict, its reasons and the headline numbers, from the tables alone (no Spark)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metrics.adversaries import of_nodes, read_adversaries
from metrics.probing import last_attempts, read_achieved
from metrics.rundir import Check, RunDir, Summary, write_document
from metrics.rundir.files import SUMMARY_FILE, table_file
from metrics.verdict import judge
from peer.core.frames import Data

Values = npt.NDArray[Any]


def write(run_dir: Path) -> Summary:
    """Close the analysis of a run whose tables are there.

    Raises:
        FileNotFoundError: a table is missing.
    """
    run = RunDir(run_dir)
    checks = tuple(msgspec.convert(row, Check) for row in _read(run, "checks").to_pylist())
    numbers = headline(run)
    minimum = float(run.experiment["verdict"].get("delivery_ratio_min", 0.0))
    verdict, reasons = judge(run.manifest, checks, numbers["delivery_ratio"], minimum)
    summary = Summary(
        verdict=verdict,
        reasons=reasons,
        headline=numbers,
        checks=checks,
        run_id=run.manifest.run_id,
        name=run.plan.name,
        seed=run.plan.seed,
        protocol=run.experiment["protocol"],
        attempt=run.attempt,
    )
    write_document(run_dir / SUMMARY_FILE, summary)
    return summary


def headline(run: RunDir) -> dict[str, Any]:
    """The headline numbers under their stable names; None = not computed."""
    adversaries = read_adversaries(run)
    numbers: dict[str, Any] = _propagation(run, adversaries) | _copies(run, adversaries) | _views(run, adversaries)
    numbers |= _control(run, adversaries) | _overlay(run) | _learning(run) | _attack(run, adversaries)
    return numbers | _certificate(run) | _hop_parts(run)


def _attack(run: RunDir, adversaries: frozenset[int]) -> dict[str, Any]:
    """Where nodes misbehave on purpose: how many, and what they got, apart from the honest nodes' numbers above."""
    if not adversaries:
        return {}
    mine = of_nodes(_read(run, "deliveries", ["node", "delivered_ns"]), "node", adversaries)
    found: dict[str, Any] = {
        "adversaries": len(adversaries),
        "adversaries_delivery_ratio": _ratio(len(mine) - mine["delivered_ns"].null_count, len(mine)),
    }
    disclosures = _read(run, "disclosures")
    if len(disclosures):
        disclosed, all_of_them = (pc.sum(disclosures[name]).as_py() for name in ("disclosed", "subscriptions"))
        found["disclosure_ratio"] = _ratio(disclosed, all_of_them)
    return found


def _learning(run: RunDir) -> dict[str, Any]:
    """What learning was worth: the last whole epoch against the first one, in which neighbours are random."""
    epochs = [row for row in _read(run, "epochs").to_pylist() if row["nodes"] and row["latency_ms_mean"] is not None]
    if len(epochs) < 2:
        return {}
    first, last = epochs[0], epochs[-1]
    return {
        "epochs": len(epochs),
        "epoch_first_delay_ms_mean": first["latency_ms_mean"],
        "epoch_last_delay_ms_mean": last["latency_ms_mean"],
        "epoch_last_delivery_ratio": last["delivery_ratio"],
        "learning_delay_reduction_ratio": 1 - last["latency_ms_mean"] / first["latency_ms_mean"],
    }


def _read(run: RunDir, name: str, columns: list[str] | None = None) -> pa.Table:
    return pq.read_table(run.tables / table_file(name), columns=columns)


def _quantile(values: Values, share: float) -> float | None:
    return float(np.quantile(values, share)) if len(values) else None


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


def _present(table: pa.Table, column: str) -> Values:
    return np.asarray(table[column].drop_null().to_numpy())


def _propagation(run: RunDir, adversaries: frozenset[int]) -> dict[str, Any]:
    rows = _read(run, "deliveries", ["node", "delivered_ns", "latency_ms", "hops", "stretch"])
    deliveries = of_nodes(rows, "node", adversaries, others=True)
    latency = _present(deliveries, "latency_ms")
    delivered = len(deliveries) - deliveries["delivered_ns"].null_count
    messages = _read(run, "messages", ["publish_ns"])
    hops, stretch = _present(deliveries, "hops"), _present(deliveries, "stretch")
    return {
        "messages_published": len(messages),
        "deliveries_expected": len(deliveries),
        "delivery_ratio": _ratio(delivered, len(deliveries)),
        "propagation_delay_ms_mean": float(latency.mean()) if len(latency) else None,
        "propagation_delay_ms_p50": _quantile(latency, 0.5),
        "propagation_delay_ms_p90": _quantile(latency, 0.9),
        "propagation_delay_ms_p99": _quantile(latency, 0.99),
        "propagation_delay_ms_max": _quantile(latency, 1.0),
        "hops_mean": float(hops.mean()) if len(hops) else None,
        "stretch_p50": _quantile(stretch, 0.5),
    }


def _copies(run: RunDir, adversaries: frozenset[int]) -> dict[str, Any]:
    """Duplicates are all copies but first ones; a relay is a node without interest, at its first copy."""
    hops = of_nodes(
        _read(run, "hops", ["dst_node", "kind", "is_dup", "is_relay"]), "dst_node", adversaries, others=True
    )
    arrived = hops.filter(pc.and_(pc.equal(hops["kind"], Data.kind), pc.is_valid(hops["is_dup"])))
    duplicates, relayed = (pc.sum(arrived[name]).as_py() or 0 for name in ("is_dup", "is_relay"))
    firsts = len(arrived) - duplicates - relayed
    return {"duplicates_per_delivery": _ratio(duplicates, firsts), "relay_ratio": _ratio(relayed, len(arrived))}


def _views(run: RunDir, adversaries: frozenset[int]) -> dict[str, Any]:
    """Means over nodes and the workload's instants, from the traces; degrees at the middle of the workload."""
    sharing = of_nodes(_read(run, "sharing"), "node", adversaries, others=True).to_pandas()
    workload = run.phase("workload")
    rows = sharing[sharing["source"] == "trace"]
    if workload is not None:
        rows = rows[(rows["at_ns"] >= workload.start_ns) & (rows["at_ns"] < workload.end_ns)]
    total, unique = rows["view_size_total"].sum(), rows["view_size_unique"].sum()
    instants = np.sort(rows["at_ns"].unique())
    degrees = rows[rows["at_ns"] == instants[len(instants) // 2]]["degree"] if len(instants) else rows["at_ns"]
    return {
        "view_size_total_mean": _ratio(total, len(rows)),
        "view_size_unique_mean": _ratio(unique, len(rows)),
        "link_sharing_ratio": _ratio(total, unique),
        "degree_mean": float(degrees.mean()) if len(degrees) else None,
        "degree_max": int(degrees.max()) if len(degrees) else None,
    }


_OVERLAY = (
    "clustering",
    "diameter",
    "path_length_mean",
    "topics",
    "topic_components",
    "topic_components_max",
    "topics_partitioned",
    "topic_diameter_max",
)


def _overlay(run: RunDir) -> dict[str, Any]:
    """The overlay's measures at the workload's end."""
    overlay = _read(run, "overlay", ["at_ns", *_OVERLAY])
    row = overlay.filter(pc.equal(overlay["at_ns"], run.timeline.published_ns)).to_pylist()[0]
    return {name: row[name] for name in _OVERLAY}


def _control(run: RunDir, adversaries: frozenset[int]) -> dict[str, Any]:
    """Bytes of frames other than data that honest peers sent in the workload, by their traces."""
    workload = run.phase("workload")
    if workload is None:
        return {"control_bytes_per_peer_per_s": None}
    hops = of_nodes(
        _read(run, "hops", ["src_node", "kind", "log_send_ns", "len_bytes"]), "src_node", adversaries, others=True
    )
    inside = pc.and_(
        pc.greater_equal(hops["log_send_ns"], workload.start_ns), pc.less(hops["log_send_ns"], workload.end_ns)
    )
    control = hops.filter(pc.and_(inside, pc.not_equal(hops["kind"], Data.kind)))
    seconds = (workload.end_ns - workload.start_ns) / 1e9
    sent = pc.sum(control["len_bytes"]).as_py() or 0
    return {"control_bytes_per_peer_per_s": _ratio(sent, (len(run.nodes) - len(adversaries)) * seconds)}


def _certificate(run: RunDir) -> dict[str, Any]:
    """RTT errors of the idle network (the sweeps before and after the workload)."""
    achieved = read_achieved(run.path)
    if achieved is None:
        return {"rtt_error_ms_p50": None, "rtt_error_ms_p99": None}
    table = last_attempts(achieved).select(["phase", "asked_rtt_ms", "rtt_ms"])
    idle = table.filter(pc.not_equal(table["phase"], "during")).drop_null()
    error = np.abs(idle["rtt_ms"].to_numpy() - idle["asked_rtt_ms"].to_numpy())
    return {"rtt_error_ms_p50": _quantile(error, 0.5), "rtt_error_ms_p99": _quantile(error, 0.99)}


def _hop_parts(run: RunDir) -> dict[str, Any]:
    """The wire part's error and the data plane's lateness as their checks take them, and the time inside hosts."""
    checks = {row["name"]: row for row in _read(run, "checks").to_pylist()}
    wire, plane = checks.get("wire_delay") or {"tested": 0}, checks.get("plane_lateness") or {"tested": 0}
    hops = _read(run, "hops", ["d_sndbuf_ns", "d_rcv_ns", "log_send_ns"])
    fidelity = _read(run, "fidelity", ["at_ns", "lateness_p99_ns"])
    hops, fidelity = _judged(run, hops, "log_send_ns"), _judged(run, fidelity, "at_ns")
    late = _present(fidelity, "lateness_p99_ns")
    return {
        "wire_error_ms_p99": wire["worst"] if wire["tested"] else None,
        "send_delay_ms_p50": _quantile(_present(hops, "d_sndbuf_ns") / 1e6, 0.5),
        "receive_delay_ms_p99": _quantile(_present(hops, "d_rcv_ns") / 1e6, 0.99),
        "lateness_ms_p99": plane["worst"] if plane["tested"] else None,
        "lateness_ms_p99_worst": float(late.max() / 1e6) if len(late) else None,
    }


def _judged(run: RunDir, table: pa.Table, instant: str) -> pa.Table:
    """The rows in the span in which hosts are judged."""
    start_ns, end_ns = run.judged_ns
    return table.filter(pc.and_(pc.greater_equal(table[instant], start_ns), pc.less_equal(table[instant], end_ns)))
