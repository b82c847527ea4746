"""The few numbers over whole tables that the checks judge. Exact, and read here: planning a query costs more."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from metrics.checks import documents
from metrics.checks.delays import DELAY_AGREEMENT_P99
from metrics.checks.evidence import (
    ByteIdentity,
    CaptureCounts,
    ConnectionCounts,
    DelayAgreement,
    DeliveryCounts,
    Evidence,
    IncompleteTrace,
    MachineLoad,
    Publications,
    StreamCoverage,
    TraceCounts,
)
from metrics.checks.execution import CHURN_MARGIN
from metrics.checks.machine import PUBLISH_LAG_P99
from metrics.pcap import CAPTURES, CONNS
from metrics.recount import recount
from metrics.rundata import RunDir
from metrics.stalls import Late, is_explained
from metrics.tables import hop_evidence
from metrics.tables.columns import numbers, of_whole_traces, outside, quantile, read_columns
from metrics.tables.overhead import FRAME_CLASSES, PACKET_CLASSES
from metrics.tables.traces import EVENTS, TraceState

_DELIVERED = ("publish_ns", "delivered_ns", "latency_ms", "wire_latency_ms")
_PUBLISHED = ("publish_ns", "scheduled_ns", "n_subscribers")
_CLASSES = (*FRAME_CLASSES, *PACKET_CLASSES)


@dataclass(frozen=True)
class Sources:
    """What the numbers are over, besides the run's tables and documents.

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

    states: dict[int | None, TraceState]
    incomplete: list[int]
    broken: pa.Array
    events: Path
    streams: Path
    conns: Path
    captures: Path


def gather(run: RunDir, sources: Sources) -> Evidence:
    """Find all evidence but the links; a part is None where the run has nothing of the kind."""
    incomplete, broken, captured = sources.incomplete, sources.broken, bool(run.captures)
    emulated = documents.is_emulated(run)
    probes = documents.read_probes(run) if emulated else None
    streams = outside(broken, pq.read_table(sources.streams))
    conns = outside(broken, pq.read_table(sources.conns, schema=CONNS))
    limits, publications = documents.read_limits(run), _publications(run, read_columns(run, "messages", *_PUBLISHED))
    deliveries = read_columns(run, "deliveries", *_DELIVERED)
    order, clocks = hop_evidence.order(run)
    frames, frame_sets = hop_evidence.completeness(run, incomplete, broken)
    return Evidence(
        limits=limits,
        stalls=run.stalls,
        schedule=documents.read_schedule(run),
        capture=documents.read_capture_state(run),
        traces=_traces(run, sources),
        publications=publications,
        deliveries=_count_deliveries(run, len(deliveries), publications.lag_ms_max),
        order=order,
        frames=frames,
        clocks=clocks if run.clocks else None,
        frame_sets=frame_sets if captured else None,
        coverage=_coverage(of_whole_traces(streams, incomplete), conns) if captured else None,
        connections=_connections(streams, conns) if captured else None,
        captures=_captures(run, pq.read_table(sources.captures, schema=CAPTURES)) if captured else None,
        agreement=_agreement(run, deliveries) if captured else None,
        wire=hop_evidence.wire_errors(run, limits.wire_error_p99_ms) if captured else None,
        identity=_identity(read_columns(run, "overhead", *_CLASSES, "wire_bytes")) if captured else None,
        hosts=hop_evidence.host_delays(run) if captured else None,
        links=None,
        probes=probes,
        first_packets=documents.read_first_packets(run) if probes and probes.sweeps is not None else None,
        plane=documents.read_plane(run) if emulated else None,
        pressure=documents.read_pressure(run) if emulated else None,
        load=_load(run),
    )


def _traces(run: RunDir, sources: Sources) -> TraceCounts:
    states = sources.states
    incomplete = [(node, states.get(node)) for node in sources.incomplete]
    return TraceCounts(
        nodes=len(run.nodes),
        incomplete=tuple(IncompleteTrace(node, state.lines if state else None) for node, state in incomplete),
        changes=sum(state.changes for state in states.values()),
        dropped=_drops(sources.events) if any(state.drops for state in states.values()) else {},
    )


def _count_deliveries(run: RunDir, rows: int, lag_ms_max: float) -> DeliveryCounts:
    counted = recount(run, round(max(CHURN_MARGIN.value, lag_ms_max) * 1e6))
    return DeliveryCounts(rows, counted.expected, counted.uncertain)


def _coverage(streams: pa.Table, conns: pa.Table) -> StreamCoverage:
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
    return StreamCoverage(
        tested=len(both),
        failed=pc.sum(pc.greater(error, 0)).as_py() or 0,
        worst_bytes=pc.max(error).as_py() or 0,
        covered_bytes=pc.sum(both["seen_bytes"]).as_py() or 0,
    )


def _captures(run: RunDir, interfaces: pa.Table) -> CaptureCounts:
    counters = run.manifest.counters
    records, dropped, not_understood = (
        pc.sum(interfaces[column]).as_py() or 0 for column in ("packets", "dropped", "n_not_understood")
    )
    return CaptureCounts(
        records=records,
        dropped=dropped,
        truncated=len(interfaces.filter(interfaces["truncated"])["pcap_file"].unique()),
        not_understood=not_understood,
        plane_frames=counters["frames_in"] + counters["frames_out"] if "frames_in" in counters else None,
        plane_dropped=counters.get("records_dropped", 0),
    )


def _agreement(run: RunDir, rows: pa.Table) -> DelayAgreement:
    """Latencies by the logs against those by the captures."""
    latency_ms = rows["latency_ms"].drop_null().to_numpy()
    difference_ms = pc.subtract(rows["latency_ms"], rows["wire_latency_ms"]).drop_null().to_numpy()
    return DelayAgreement(
        both=len(difference_ms),
        negative=int((difference_ms < 0).sum()),
        most_negative_ms=abs(float(difference_ms.min(initial=0.0))),
        before_publication=int((latency_ms < 0).sum()),
        difference_ms_p50=quantile(difference_ms, 0.5) or 0.0,
        difference_ms_p99=quantile(difference_ms, 0.99) or 0.0,
        late=_differences(run, rows),
    )


def _differences(run: RunDir, rows: pa.Table) -> Late:
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
    limit_ns = DELAY_AGREEMENT_P99.ns
    return Late(int((inside_ns > limit_ns).sum()), int(is_explained(inside_ns, stalled_ns, limit_ns).sum()))


def _publications(run: RunDir, messages: pa.Table) -> Publications:
    scheduled = messages.select(["scheduled_ns", "publish_ns"]).drop_null()
    due_ns, published_ns = numbers(scheduled["scheduled_ns"]), numbers(scheduled["publish_ns"])
    lag_ms = pc.subtract(messages["publish_ns"], messages["scheduled_ns"]).drop_null().to_numpy() / 1e6
    return Publications(
        messages=len(messages),
        with_schedule=len(messages) - messages["scheduled_ns"].null_count,
        subscribers=pc.sum(messages["n_subscribers"]).as_py() or 0,
        lag_ms_p99=quantile(lag_ms, 0.99) or 0.0,
        lag_ms_max=quantile(lag_ms, 1) or 0.0,
        late=run.stalls.tally(due_ns, published_ns, PUBLISH_LAG_P99.ns),
    )


def _identity(overhead: pa.Table) -> ByteIdentity:
    """Bytes in classes against bytes on the wire, by node and second."""
    wire_bytes, other_bytes = numbers(overhead["wire_bytes"]), numbers(overhead["other_bytes"])
    total = np.sum([numbers(overhead[name]) for name in _CLASSES], axis=0)
    error = np.abs(total - wire_bytes) + np.maximum(-other_bytes, 0)
    return ByteIdentity(
        tested=len(error),
        failed=int((error > 0).sum()),
        worst_bytes=int(error.max(initial=0)),
        wire_bytes=int(wire_bytes.sum()),
    )


def _connections(streams: pa.Table, conns: pa.Table) -> ConnectionCounts:
    """Connections by their frames in the traces against those with stream bytes in the captures."""
    has_bytes = pc.greater(pc.add(conns["orig_bytes"], conns["resp_bytes"]), 0)
    traced = set(streams.filter(pc.is_valid(streams["logged_bytes"]))["conn"].to_pylist())
    seen = set(conns.filter(has_bytes)["conn"].to_pylist())
    return ConnectionCounts(
        connections=len(traced | seen), only_traced=len(traced - seen), only_on_wire=len(seen - traced)
    )


def _load(run: RunDir) -> MachineLoad | None:
    """Seconds of the workload and of the time that its last messages need; None where nothing was recorded of them."""
    rows = read_columns(run, "fidelity", "at_ns", "cpu_busy_ratio", "steal_ratio")
    at_ns, working = numbers(rows["at_ns"]), np.zeros(len(rows), np.bool_)
    for phase in (run.phase("workload"), run.phase("cooldown")):
        if phase is not None:
            working |= (phase.start_ns <= at_ns) & (at_ns < phase.end_ns)
    rows = rows.filter(pa.array(working))
    busy, steal = (tuple(rows[name].drop_null().to_pylist()) for name in ("cpu_busy_ratio", "steal_ratio"))
    return MachineLoad(busy, steal) if busy else None


def _drops(events: Path) -> dict[str, int]:
    """Frames that peers dropped, by reason."""
    said = ds.dataset(events, schema=EVENTS).to_table(columns=["reason"], filter=pc.field("event") == "drop")
    return dict(Counter(pc.fill_null(said["reason"], "unsaid").to_pylist()))
