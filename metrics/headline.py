"""The headline numbers of a run, from its tables."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import of_nodes, read_adversaries
from metrics.measures.attacks import ATTACK, DISCLOSURE, Attack, Disclosure
from metrics.measures.deliveries import DELIVERIES, Deliveries
from metrics.measures.emulation import EMULATION, EmulationFacts
from metrics.measures.learning import LEARNING
from metrics.measures.measure import Values
from metrics.measures.registry import HEADLINE
from metrics.measures.snapshots import LINKS
from metrics.measures.traffic import TRAFFIC, Traffic
from metrics.overlay.nodes import NodeLinks
from metrics.probing import last_attempts, read_achieved, rtt_errors_ms
from metrics.received import read_received
from metrics.rundir import RunDir
from metrics.tables.columns import read_columns
from metrics.tables.schemas import TABLES

Nodes = frozenset[int]


def headline(run: RunDir) -> dict[str, Any]:
    """The numbers under their stable names; None = not computed. Without learning or adversaries, theirs are absent."""
    adversaries = read_adversaries(run)
    numbers: dict[str, Any] = _overlay(run) | LINKS.numbers(_links(run, adversaries))
    numbers |= DELIVERIES.numbers(read_delivery_rows(run, adversaries).facts)
    numbers |= TRAFFIC.numbers(_traffic(run, adversaries))
    numbers |= EMULATION.numbers(_emulation(run, adversaries))
    numbers |= _learning(run) | _attack(run, adversaries)
    numbers["messages_published"] = numbers["messages"]
    return {name: numbers[name] for name in HEADLINE if name in numbers}


def _attack(run: RunDir, adversaries: Nodes) -> dict[str, float | None]:
    if not adversaries:
        return {}
    theirs = of_nodes(read_columns(run, "deliveries", "node", "delivered_ns"), "node", adversaries)
    deliveries = Deliveries(0, len(theirs), len(theirs) - theirs["delivered_ns"].null_count, np.empty(0))
    numbers = ATTACK.numbers(Attack(len(adversaries), deliveries))
    askers = [Disclosure(**row) for row in read_columns(run, "disclosures", *TABLES["disclosures"]).to_pylist()]
    return numbers | (DISCLOSURE.numbers(askers) if askers else {})


def _learning(run: RunDir) -> dict[str, float | None]:
    """The last whole epoch against the first one, in which neighbours are random."""
    rows = read_columns(run, "epochs", "nodes", "latency_ms_mean", "delivery_ratio").to_pylist()
    epochs = [row for row in rows if row["nodes"] and row["latency_ms_mean"] is not None]
    return LEARNING.numbers(epochs) if len(epochs) > 1 else {}


def _present(table: pa.Table, column: str) -> Values:
    return np.asarray(table[column].drop_null().to_numpy())


class DeliveryRows(NamedTuple):
    """Rows of which the measures of deliveries are computed, all of honest nodes.

    Attributes:
        messages: how many were published.
        deliveries: the expected ones: message_id, delivered_ns, latency_ms, hops.
        received: the copies: message_id, dst_node, is_dup, is_relay, at_relay.
    """

    messages: int
    deliveries: pa.Table
    received: pa.Table

    @property
    def facts(self) -> Deliveries:
        """What the formulas read."""
        sums = [(name, "sum") for name in ("is_dup", "is_relay", "at_relay")]
        by_node = self.received.group_by("dst_node").aggregate([([], "count_all"), *sums])
        return Deliveries(
            messages=self.messages,
            expected=len(self.deliveries),
            delivered=len(self.deliveries) - self.deliveries["delivered_ns"].null_count,
            delays_ms=_present(self.deliveries, "latency_ms"),
            hops=_present(self.deliveries, "hops"),
            relays=pc.sum(by_node["is_relay_sum"]).as_py() or 0,
            duplicates=pc.sum(by_node["is_dup_sum"]).as_py() or 0,
            copies=by_node["count_all"].to_numpy(),
            at_relay=by_node["at_relay_sum"].to_numpy().astype(np.int64),
        )


def read_delivery_rows(run: RunDir, adversaries: Nodes) -> DeliveryRows:
    """Read deliveries to honest nodes, and the copies that arrived there."""
    rows = read_columns(run, "deliveries", "node", "message_id", "delivered_ns", "latency_ms", "hops")
    return DeliveryRows(
        len(read_columns(run, "messages", "publish_ns")),
        of_nodes(rows, "node", adversaries, others=True),
        read_received(run, adversaries, "message_id", "is_dup", "is_relay"),
    )


def _links(run: RunDir, adversaries: Nodes) -> NodeLinks:
    """Views at every node and second of the workload, from the traces; degrees at the middle of the workload."""
    columns = ("source", "at_ns", "node", "view_size_total", "view_size_unique", "degree")
    rows = of_nodes(read_columns(run, "sharing", *columns), "node", adversaries, others=True)
    rows = rows.filter(pc.equal(rows["source"], "trace"))
    workload = run.phase("workload")
    if workload is not None:
        rows = _between(rows, "at_ns", workload.start_ns, workload.end_ns - 1)
    instants = np.unique(_present(rows, "at_ns"))
    middle = rows.filter(pc.equal(rows["at_ns"], int(instants[len(instants) // 2]))) if len(instants) else rows
    total, unique = _present(rows, "view_size_total"), _present(rows, "view_size_unique")
    nothing = np.empty(0, np.int64)
    return NodeLinks(total, unique, nothing, _present(middle, "degree"), nothing, nothing)


def _overlay(run: RunDir) -> dict[str, Any]:
    """The overlay's measures at the workload's end."""
    overlay = read_columns(run, "overlay", *TABLES["overlay"])
    end_ns = run.timeline.published_ns
    row: dict[str, Any] = overlay.filter(pc.equal(overlay["at_ns"], end_ns)).to_pylist()[0]
    return row


def _traffic(run: RunDir, adversaries: Nodes) -> Traffic:
    """What honest peers sent in the workload, by their traces."""
    workload = run.phase("workload")
    if workload is None:
        return Traffic({}, {}, 0)
    hops = read_columns(run, "hops", "src_node", "kind", "log_send_ns", "len_bytes")
    hops = of_nodes(hops, "src_node", adversaries, others=True)
    sent = _between(hops, "log_send_ns", workload.start_ns, workload.end_ns - 1)
    kinds = sent.group_by("kind").aggregate([([], "count_all"), ("len_bytes", "sum")]).to_pylist()
    return Traffic(
        {row["kind"]: row["count_all"] for row in kinds},
        {row["kind"]: row["len_bytes_sum"] or 0 for row in kinds},
        (len(run.nodes) - len(adversaries)) * ((workload.end_ns - workload.start_ns) / 1e9),
    )


def _emulation(run: RunDir, adversaries: Nodes) -> EmulationFacts:
    """RTT errors of the idle network (the sweeps before and after the workload); delays inside hosts, while judged."""
    start_ns, end_ns = run.judged_ns
    stretches = of_nodes(read_columns(run, "deliveries", "node", "stretch"), "node", adversaries, others=True)
    hops = _between(
        read_columns(run, "hops", "d_sndbuf_ns", "d_rcv_ns", "log_send_ns"), "log_send_ns", start_ns, end_ns
    )
    fidelity = _between(read_columns(run, "fidelity", "at_ns", "lateness_p99_ns"), "at_ns", start_ns, end_ns)
    checks = read_columns(run, "checks", "name", "tested", "worst").to_pylist()
    worst = {row["name"]: row["worst"] for row in checks if row["tested"]}
    return EmulationFacts(
        stretches=_present(stretches, "stretch"),
        rtt_errors_ms=_rtt_errors(run),
        wire_error_ms_p99=worst.get("wire_delay"),
        send_delays_ms=_present(hops, "d_sndbuf_ns") / 1e6,
        receive_delays_ms=_present(hops, "d_rcv_ns") / 1e6,
        lateness_ms_p99=worst.get("plane_lateness"),
        second_lateness_ms=_present(fidelity, "lateness_p99_ns") / 1e6,
    )


def _rtt_errors(run: RunDir) -> Values:
    achieved = read_achieved(run.path)
    if achieved is None:
        return np.empty(0)
    table = last_attempts(achieved).select(["phase", "asked_rtt_ms", "rtt_ms"])
    idle = table.filter(pc.not_equal(table["phase"], "during")).drop_null()
    return rtt_errors_ms(idle)


def _between(table: pa.Table, instant: str, first_ns: int, last_ns: int) -> pa.Table:
    """The rows of a span of time, both ends included."""
    return table.filter(pc.and_(pc.greater_equal(table[instant], first_ns), pc.less_equal(table[instant], last_ns)))
