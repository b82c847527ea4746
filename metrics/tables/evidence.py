"""The few numbers over whole tables that the checks judge. Exact, and read here: planning a query costs more."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from metrics.certificate import PUBLISH_LAG_P99_MS
from metrics.checks import DELAY_AGREEMENT_P99_MS, Evidence
from metrics.pcap import CAPTURES, CONNS
from metrics.rundir import RunDir
from metrics.tables import hop_evidence
from metrics.tables.columns import numbers, of_whole_traces, outside, quantile, read_columns
from metrics.tables.overhead import FRAME_CLASSES, PACKET_CLASSES
from metrics.tables.traces import EVENTS

_DELIVERED = ("publish_ns", "delivered_ns", "latency_ms", "wire_latency_ms")
_CLASSES = (*FRAME_CLASSES, *PACKET_CLASSES)


@dataclass(frozen=True)
class Sources:
    """What the numbers are over, besides the run's tables.

    Attributes:
        states: ``logs.Logs.read``'s, by node.
        incomplete: nodes whose trace is missing or cut off.
        broken: connections that a crash broke. Frames on them may be lost, which was asked for: they count for no
            check of completeness.
        events: ``traces.EVENTS`` as Parquet.
        streams: ``condensed.condense_streams``.
        conns: ``metrics.pcap.CONNS``.
        captures: ``metrics.pcap.CAPTURES``.
    """

    states: dict[int, dict[str, Any]]
    incomplete: list[int]
    broken: pa.Array
    events: Path
    streams: Path
    conns: Path
    captures: Path


def gather(run: RunDir, sources: Sources) -> Evidence:
    """Find them all; a part is empty where the run has nothing of the kind."""
    states, incomplete, broken = sources.states, sources.incomplete, sources.broken
    captured = bool(run.captures)
    streams = outside(broken, pq.read_table(sources.streams))
    conns = outside(broken, pq.read_table(sources.conns, schema=CONNS))
    of_hops = hop_evidence.order(run) | hop_evidence.copies(run)
    return Evidence(
        traces=states,
        incomplete=incomplete,
        captured=captured,
        hops=of_hops | hop_evidence.completeness(run, incomplete, broken),
        wire=hop_evidence.wire_errors(run) if captured else {},
        coverage=_coverage(of_whole_traces(streams, incomplete), conns) if captured else {},
        captures=_captures(pq.read_table(sources.captures, schema=CAPTURES)) if captured else {},
        deliveries=count_agreement(run, read_columns(run, "deliveries", *_DELIVERED)),
        messages=count_publications(run, read_columns(run, "messages", "publish_ns", "scheduled_ns", "n_subscribers")),
        overhead=_identity(read_columns(run, "overhead", *_CLASSES, "wire_bytes")) if captured else {},
        conns=_connections(streams, conns) if captured else {},
        dropped_frames=_drops(sources.events) if any(state["drops"] for state in states.values()) else {},
        member_changes=sum(state["changes"] for state in states.values()),
    )


def _coverage(streams: pa.Table, conns: pa.Table) -> dict[str, Any]:
    """Stream bytes by the logs against each vantage's, by connection, direction and vantage."""
    named = streams.filter(pc.is_valid(streams["logged_bytes"])).group_by(["conn", "direction"])
    logged = named.aggregate([("incarnation", "max"), ("logged_bytes", "max"), ("end_bytes", "max")])
    views = [
        pa.table(
            {
                "conn": conns["conn"],
                "direction": pa.repeat(side, len(conns)),
                "seen_bytes": conns[f"{side}_bytes"],
                "missed_bytes": conns["missed_bytes"],
            }
        )
        for side in ("orig", "resp")
    ]
    alone = logged.filter(pc.equal(logged["incarnation_max"], 0))
    both = alone.join(pa.concat_tables(views), ["conn", "direction"], join_type="inner")
    error = pc.max_element_wise(
        pc.abs(pc.subtract(both["logged_bytes_max"], both["end_bytes_max"])),
        pc.abs(pc.subtract(both["seen_bytes"], both["end_bytes_max"])),
        both["missed_bytes"],
    )
    return {
        "coverage_tested": len(both),
        "coverage_failed": pc.sum(pc.greater(error, 0)).as_py() or 0,
        "coverage_worst_bytes": pc.max(error).as_py(),
        "covered_bytes": pc.sum(both["seen_bytes"]).as_py(),
    }


def _captures(interfaces: pa.Table) -> dict[str, Any]:
    sums = {"records": "packets", "dropped": "dropped", "not_understood": "n_not_understood"}
    cut_off = interfaces.filter(interfaces["truncated"])["pcap_file"]
    return {
        "interfaces": len(interfaces),
        "truncated": len(cut_off.unique()),
        **{name: pc.sum(interfaces[column]).as_py() or 0 for name, column in sums.items()},
    }


def count_agreement(run: RunDir, rows: pa.Table) -> dict[str, Any]:
    """Latencies by the logs against those by the captures."""
    latency_ms = rows["latency_ms"].drop_null().to_numpy()
    difference_ms = pc.subtract(rows["latency_ms"], rows["wire_latency_ms"]).drop_null().to_numpy()
    return {
        "rows": len(rows),
        "delivered": len(rows) - rows["delivered_ns"].null_count,
        "both": len(difference_ms),
        "negative": int((difference_ms < 0).sum()),
        "most_negative_ms": float(-difference_ms.min()) if len(difference_ms) else None,
        "difference_ms_p50": quantile(difference_ms, 0.5),
        "difference_ms_p99": quantile(difference_ms, 0.99),
        **_differences(run, rows),
        "before_publication": int((latency_ms < 0).sum()),
        "latency_ms_p50": quantile(latency_ms, 0.5, "linear"),
        "latency_ms_p99": quantile(latency_ms, 0.99, "linear"),
    }


def _differences(run: RunDir, rows: pa.Table) -> dict[str, int]:
    """How many deliveries were longer inside the first and the last host than allowed, and how many stalls explain.

    The time in the first host begins with the publication, that in the last one ends with the delivery. How it is
    divided is not known, so a stall counts that lies within it of either.
    """
    both = rows.filter(pc.is_valid(rows["wire_latency_ms"])).select(_DELIVERED).drop_null()
    published_ns, delivered_ns = numbers(both["publish_ns"]), numbers(both["delivered_ns"])
    inside_ns = ((both["latency_ms"].to_numpy() - both["wire_latency_ms"].to_numpy()) * 1e6).astype(np.int64)
    first_ns = run.stalls.covered_ns(published_ns, published_ns + inside_ns)
    last_ns = run.stalls.covered_ns(delivered_ns - inside_ns, delivered_ns)
    stalled_ns = np.minimum(first_ns + last_ns, run.stalls.covered_ns(published_ns, delivered_ns))
    limit_ns = round(DELAY_AGREEMENT_P99_MS * 1e6)
    late = inside_ns > limit_ns
    return {
        "difference_late": int(late.sum()),
        "difference_explained": int((late & (inside_ns - stalled_ns <= limit_ns)).sum()),
    }


def count_publications(run: RunDir, messages: pa.Table) -> dict[str, Any]:
    """How late messages were published."""
    scheduled = messages.select(["scheduled_ns", "publish_ns"]).drop_null()
    due_ns, published_ns = numbers(scheduled["scheduled_ns"]), numbers(scheduled["publish_ns"])
    late, explained = run.stalls.tally(due_ns, published_ns, round(PUBLISH_LAG_P99_MS * 1e6))
    lag_ms = pc.subtract(messages["publish_ns"], messages["scheduled_ns"]).drop_null().to_numpy() / 1e6
    return {
        "messages": len(messages),
        "subscribers": pc.sum(messages["n_subscribers"]).as_py() or 0,
        "with_schedule": len(messages) - messages["scheduled_ns"].null_count,
        "lag_ms_p99": quantile(lag_ms, 0.99),
        "lag_ms_max": quantile(lag_ms, 1),
        "lag_late": late,
        "lag_explained": explained,
        "early": int((lag_ms < 0).sum()),
    }


def _identity(overhead: pa.Table) -> dict[str, Any]:
    """Bytes in classes against bytes on the wire, by node and second."""
    wire_bytes, other_bytes = numbers(overhead["wire_bytes"]), numbers(overhead["other_bytes"])
    total = np.sum([numbers(overhead[name]) for name in _CLASSES], axis=0)
    error = np.abs(total - wire_bytes) + np.maximum(-other_bytes, 0)
    return {
        "identity_tested": len(error),
        "identity_failed": int((error > 0).sum()),
        "identity_worst_bytes": int(error.max(initial=0)),
        "wire_bytes": int(wire_bytes.sum()),
    }


def _connections(streams: pa.Table, conns: pa.Table) -> dict[str, Any]:
    """Connections by their frames in the traces against those with stream bytes in the captures."""
    has_bytes = pc.greater(pc.add(conns["orig_bytes"], conns["resp_bytes"]), 0)
    traced = set(streams.filter(pc.is_valid(streams["logged_bytes"]))["conn"].to_pylist())
    seen = set(conns.filter(has_bytes)["conn"].to_pylist())
    return {
        "connections": len(traced | seen),
        "only_traced": len(traced - seen),
        "only_on_wire": len(seen - traced),
    }


def _drops(events: Path) -> dict[str, int]:
    """Frames that peers dropped, by reason."""
    said = ds.dataset(events, schema=EVENTS).to_table(columns=["reason"], filter=pc.field("event") == "drop")
    return dict(Counter(pc.fill_null(said["reason"], "unsaid").to_pylist()))
