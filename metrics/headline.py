"""Computes the headline numbers of a run from its tables."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import read_adversaries
from metrics.measures.attacks import ATTACK, DISCLOSURE, Attack, Disclosure
from metrics.measures.deliveries import DELIVERIES, Deliveries
from metrics.measures.distribution import of_counts
from metrics.measures.emulation import EMULATION, EmulationFacts
from metrics.measures.groups import GROUPS, GroupMessages
from metrics.measures.learning import LEARNING
from metrics.measures.measure import Values
from metrics.measures.registry import HEADLINE
from metrics.measures.resources import RESOURCES, Resources
from metrics.measures.snapshots import LINKS, WIRE_LINKS
from metrics.measures.traffic import TRAFFIC, Traffic
from metrics.overlay.nodes import NodeLinks
from metrics.recorded.probing import last_attempts, read_achieved, rtt_errors_ms
from metrics.reported import find_missing, hide_values
from metrics.rundir import RunDir
from metrics.rundir.files import table_file
from metrics.storage.parquet import group_parquet
from metrics.tables.columns import read_columns
from metrics.tables.schemas import GROUP_LINKS, OPTIONAL, TABLES, arrow_schema
from metrics.totals import CopyCounts, HopTotals, MessageTotals, RowCount, Totals, read_totals

Nodes = frozenset[int]


def headline(run: RunDir) -> dict[str, Any]:
    """Return the numbers by stable names; None = not computed. Numbers on learning and adversaries may be absent."""
    adversaries = read_adversaries(run)
    numbers: dict[str, Any] = _overlay(run) | _links(run, adversaries)
    totals = read_totals(run)
    numbers |= DELIVERIES.numbers(_deliveries(totals.messages))
    numbers |= TRAFFIC.numbers(_traffic(run, totals.hops, adversaries))
    numbers |= EMULATION.numbers(_emulation(run, totals)) | RESOURCES.numbers(_resources(run))
    numbers |= _groups(run, totals.messages, adversaries) | _learning(run) | _attack(run, totals.messages, adversaries)
    numbers["messages_published"] = numbers["messages"]
    return hide_values({name: numbers[name] for name in HEADLINE if name in numbers}, find_missing(run))


def _attack(run: RunDir, totals: MessageTotals, adversaries: Nodes) -> dict[str, float | None]:
    if not adversaries:
        return {}
    expected, delivered, unknown = totals.attacked
    deliveries = Deliveries(0, expected, delivered, np.empty(0), unknown=unknown)
    numbers = ATTACK.numbers(Attack(len(adversaries), deliveries))
    askers = [Disclosure(**row) for row in read_columns(run, "disclosures", *TABLES["disclosures"]).to_pylist()]
    return numbers | (DISCLOSURE.numbers(askers) if askers else {})


def _groups(run: RunDir, totals: MessageTotals, adversaries: Nodes) -> dict[str, float | None]:
    """Return the values for the measures of messages with expressions, of honest nodes; none without such messages."""
    if not run.has_expressions:
        return {}
    table = read_columns(run, "groups", *OPTIONAL["groups"])
    columns = {name: table[name].to_numpy() for name in GroupMessages.__struct_fields__ if name in table.column_names}
    honest = (node for node in run.nodes if node not in adversaries)
    sent = [totals.copies_by_sender.get(node, RowCount(0)).rows for node in honest]
    expressions = read_columns(run, GROUP_LINKS, "expressions")["expressions"].to_numpy()
    return GROUPS.numbers(GroupMessages(**columns, sent=np.array(sent), expressions=expressions))


def _learning(run: RunDir) -> dict[str, float | None]:
    """Compare the last whole epoch with the first one, in which neighbours are random."""
    rows = read_columns(run, "epochs", "nodes", "latency_ms_mean", "delivery_ratio").to_pylist()
    epochs = [row for row in rows if row["nodes"] and row["latency_ms_mean"] is not None]
    return LEARNING.numbers(epochs) if len(epochs) > 1 else {}


def _present(table: pa.Table, column: str) -> Values:
    return np.asarray(table[column].drop_null().to_numpy())


def _deliveries(totals: MessageTotals) -> Deliveries:
    copies = np.array(list(totals.copies_by_node.values()), np.int64).reshape(-1, len(CopyCounts._fields))
    received, duplicates, relays, at_relay = copies.T
    expected, delivered, unknown = totals.deliveries
    return Deliveries(
        totals.messages,
        expected,
        delivered,
        delays_ms=totals.latency_ms,
        hops=totals.hops,
        repeated=totals.repeated,
        relays=int(relays.sum()),
        duplicates=int(duplicates.sum()),
        copies=received,
        at_relay=at_relay,
        unknown=unknown,
    )


def _links(run: RunDir, adversaries: Nodes) -> dict[str, float | None]:
    """Measure views at every node and second of the workload, by the traces, and degrees in the middle of the workload.

    Ratios are over all seconds. By the captures, there is no ratio if one node's logical links are not known.
    """
    honest, workload = ~pc.field("node").isin(sorted(adversaries)), run.phase("workload")
    if workload is not None:
        honest &= (pc.field("at_ns") >= workload.start_ns) & (pc.field("at_ns") < workload.end_ns)
    traced, observed = (honest & (pc.field("source") == source) for source in ("trace", "frames"))
    instants = _group_sharing(run, "at_ns", traced)["at_ns"].to_pylist()
    then = traced & (pc.field("at_ns") == instants[len(instants) // 2]) if instants else traced
    always, middle = (LINKS.numbers(_node_links(run, where)) for where in (traced, then))
    degrees = {name: value for name, value in middle.items() if name.startswith("degree")}
    unknown = _group_sharing(run, "source", observed & pc.field("view_size_total").is_null())
    on_wire = _node_links(run, observed & False if len(unknown) else observed)
    return always | degrees | WIRE_LINKS.numbers(on_wire)


def _node_links(run: RunDir, where: pc.Expression) -> NodeLinks:
    """Return the links of nodes at seconds, which may be as many as the seconds of all nodes, as distributions."""
    nothing = np.empty(0, np.int64)
    columns = ("view_size_total", "view_size_unique", "degree")
    counted = (_group_sharing(run, name, where & pc.field(name).is_valid()) for name in columns)
    total, unique, degree = (
        of_counts(*(each[name].to_pylist() for name in (column, "count")))
        for column, each in zip(columns, counted, strict=True)
    )
    return NodeLinks(total, unique, nothing, degree, nothing, nothing)


def _group_sharing(run: RunDir, column: str, where: pc.Expression) -> pa.Table:
    """Return each value of a column of ``sharing`` with the number of rows that have it."""
    return group_parquet(run.tables / table_file("sharing"), arrow_schema("sharing"), [column], where=where)


def _overlay(run: RunDir) -> dict[str, Any]:
    """Return the overlay's measures at the workload's end."""
    overlay = read_columns(run, "overlay", *TABLES["overlay"])
    end_ns = run.timeline.published_ns
    row: dict[str, Any] = overlay.filter(pc.equal(overlay["at_ns"], end_ns)).to_pylist()[0]
    return row


def _traffic(run: RunDir, totals: HopTotals, adversaries: Nodes) -> Traffic:
    """Return what honest peers sent in the workload, by their traces."""
    workload = run.phase("workload")
    if workload is None:
        return Traffic({}, {}, 0)
    return Traffic(
        {kind: counts.frames for kind, counts in totals.sent.items()},
        {kind: counts.len_bytes for kind, counts in totals.sent.items()},
        (len(run.nodes) - len(adversaries)) * ((workload.end_ns - workload.start_ns) / 1e9),
    )


def _emulation(run: RunDir, totals: Totals) -> EmulationFacts:
    """Return RTT errors of the idle network (sweeps before and after the workload), and delays inside hosts."""
    fidelity = _between(read_columns(run, "fidelity", "at_ns", "lateness_p99_ns"), "at_ns", *run.judged_ns)
    checks = read_columns(run, "checks", "name", "tested", "worst").to_pylist()
    worst = {row["name"]: row["worst"] for row in checks if row["tested"]}
    return EmulationFacts(
        least_delays_ms=totals.messages.least_latency_ms,
        stretches=totals.messages.stretch,
        rtt_errors_ms=_rtt_errors(run),
        wire_error_ms_p99=worst.get("wire_delay"),
        send_delays_ms=totals.hops.judged_send_ms,
        receive_delays_ms=totals.hops.judged_receive_ms,
        lateness_ms_p99=worst.get("plane_lateness"),
        second_lateness_ms=_present(fidelity, "lateness_p99_ns") / 1e6,
        wire_bytes=_wire_bytes(run),
        deliveries=totals.messages.deliveries.delivered,
    )


def _wire_bytes(run: RunDir) -> float | None:
    """Return the bytes of TCP and UDP packets in the workload; None if nothing was captured."""
    workload, overhead = run.phase("workload"), read_columns(run, "overhead", "second_ns", "wire_bytes", "other_bytes")
    if workload is None or not len(overhead):
        return None
    sent = _between(overhead, "second_ns", workload.start_ns, workload.end_ns - 1)
    return float(np.sum(sent["wire_bytes"].to_numpy() - sent["other_bytes"].to_numpy()))


def _resources(run: RunDir) -> Resources:
    workload, used = run.phase("workload"), run.manifest.resources
    workload_s = 0.0 if workload is None else (workload.end_ns - workload.start_ns) / 1e9
    return Resources(len(run.nodes), workload_s, used.get("peers_pss_mib"), used.get("peers_cpu_s"))


def _rtt_errors(run: RunDir) -> Values:
    achieved = read_achieved(run.path)
    if achieved is None:
        return np.empty(0)
    table = last_attempts(achieved).select(["phase", "asked_rtt_ms", "rtt_ms"])
    idle = table.filter(pc.not_equal(table["phase"], "during")).drop_null()
    return rtt_errors_ms(idle)


def _between(table: pa.Table, instant: str, first_ns: int, last_ns: int) -> pa.Table:
    """Return the rows of a span of time, both ends included."""
    return table.filter(pc.and_(pc.greater_equal(table[instant], first_ns), pc.less_equal(table[instant], last_ns)))
