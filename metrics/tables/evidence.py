"""The few numbers over whole tables that the checks judge: one aggregation a table, then plain values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from metrics.checks import JITTER_SIGMAS, Evidence
from metrics.rundata import RunDir
from metrics.tables.churn import broken_connections
from metrics.tables.together import together
from peer.core.frames import Data


def gather(
    run: RunDir,
    states: dict[int, dict[str, Any]],
    incomplete: list[int],
    hops: DataFrame,
    staged: dict[str, DataFrame],
    tables: dict[str, DataFrame],
) -> Evidence:
    """Aggregate.

    Args:
        run: the run directory.
        states: ``logs.trace_states`` by node.
        incomplete: nodes whose trace is missing or cut off.
        hops: the ``hops`` table.
        staged: the traces' ``events`` and ``frames``, the captures' ``conns`` and ``captures``, and ``streams``.
        tables: ``messages`` and ``overhead``.

    Frames on connections that a crash broke may be lost, which was asked for: they count for no check of completeness.
    """
    whole = ~F.col("src_node").isin(incomplete) & ~F.col("dst_node").isin(incomplete)
    captured = bool(run.captures)
    frames, conns, streams, sound = staged["frames"], staged["conns"], staged["streams"], hops
    if any(state["crashes"] for state in states.values()):
        broken = F.broadcast(broken_connections(staged["events"], hops).localCheckpoint())
        frames, conns, streams, sound = (
            each.join(broken, "conn", "left_anti") for each in (frames, conns, streams, hops)
        )
    of_all = order(run) | _shares(run.judged_ns)
    of_sound = (_sets(whole) if captured else {}) | _arrival(whole)
    asked: dict[str, Callable[[], dict[str, Any]]] = {
        "hops": lambda: _one(hops, of_all | of_sound) if sound is hops else _one(hops, of_all) | _one(sound, of_sound),
        "deliveries": lambda: _agreement(run.path / "tables" / "deliveries.parquet"),
        "messages": lambda: _one(tables["messages"], _publications()),
    }
    if captured:
        asked |= {
            "wire": lambda: _one(_undisturbed(run, hops), _wire_errors()),
            "coverage": lambda: _one(_coverage(streams, conns, incomplete), _coverage_errors()),
            "captures": lambda: _one(staged["captures"], _capture_counts()),
            "overhead": lambda: _one(tables["overhead"], _identity()),
            "conns": lambda: _connections(frames, conns),
        }
    if any(state["drops"] for state in states.values()):
        asked["dropped_frames"] = lambda: _drops(staged["events"])
    found = together(**asked)
    return Evidence(
        traces=states,
        incomplete=incomplete,
        captured=captured,
        hops=found["hops"],
        wire=found.get("wire", {}),
        coverage=found.get("coverage", {}),
        captures=found.get("captures", {}),
        deliveries=found["deliveries"],
        messages=found["messages"],
        overhead=found.get("overhead", {}),
        conns=found.get("conns", {}),
        dropped_frames=found.get("dropped_frames", {}),
        member_changes=sum(state["changes"] for state in states.values()),
    )


def _one(table: DataFrame, columns: dict[str, Column]) -> dict[str, Any]:
    row: dict[str, Any] = table.agg(*(column.alias(name) for name, column in columns.items())).collect()[0].asDict()
    return row


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def order(run: RunDir) -> dict[str, Column]:
    """Comparisons of consecutive instants of a hop, how many are the wrong way round, and by how much at most.

    Between machines an instant may seem to come earlier by as much as their clocks are unsure; of such hops also how
    many there are, and how many took no longer than that.
    """
    unsure = _unsure_ns(run)
    steps = [
        ("log_send_ns", "tap_tx_ns"),
        ("tap_tx_ns", "tap_rx_ns"),
        ("tap_rx_ns", "log_recv_ns"),
        ("log_send_ns", "log_recv_ns"),
    ]
    differences = [F.col(after) - F.col(before) for before, after in steps]
    delay = differences[-1]
    return {
        "order_tested": sum((F.count(difference) for difference in differences), F.lit(0)),
        "order_failed": sum((_count(difference < -unsure) for difference in differences), F.lit(0)),
        "order_worst_ns": F.greatest(*(F.max(-unsure - difference) for difference in differences), F.lit(0)),
        "unsure_tested": _count((unsure > 0) & delay.isNotNull()),
        "unsure_unresolved": _count((unsure > 0) & (delay <= unsure)),
        "unsure_ns": F.max(unsure),
    }


def _unsure_ns(run: RunDir) -> Column:
    """By how much a hop's delay may be wrong: between machines the sum of their clocks' errors, within one nothing."""
    if not run.clocks:
        return F.lit(0)
    places = sorted(run.plan["placement"], key=lambda place: int(place["node"]))
    machines = F.lit([place["machine"] for place in places])
    errors = F.lit([run.clocks[place["node"]].error_ns if place["node"] in run.clocks else 0 for place in places])
    src, dst = F.col("src_node"), F.col("dst_node")
    apart = F.get(machines, src) != F.get(machines, dst)
    return F.when(apart, F.get(errors, src) + F.get(errors, dst)).otherwise(0)


def _sets(whole: Column) -> dict[str, Column]:
    sent, read = F.col("log_send_ns").isNotNull(), F.col("log_recv_ns").isNotNull()
    left, came = F.col("tap_tx_ns").isNotNull(), F.col("tap_rx_ns").isNotNull()
    return {
        "sets_tested": _count(whole),
        "sent_unseen": _count(whole & sent & ~left),
        "read_unseen": _count(whole & read & ~came),
        "seen_unsent": _count(whole & left & ~sent),
        "read_unsent": _count(whole & read & ~sent),
    }


def _arrival(whole: Column) -> dict[str, Column]:
    sent = F.col("log_send_ns").isNotNull()
    return {"frames_sent": _count(whole & sent), "frames_unread": _count(whole & sent & F.col("log_recv_ns").isNull())}


def _shares(judged_ns: tuple[int, int]) -> dict[str, Column]:
    """Times that frames sent in the judged span spent inside hosts, and copies by what they were good for."""
    judged = F.col("log_send_ns").between(*judged_ns)
    receive, send = (F.when(judged, F.col(name)) for name in ("d_rcv_ns", "d_sndbuf_ns"))
    is_data = F.col("kind") == Data.kind
    return {
        "receive_ms_p50": F.percentile_approx(receive, 0.5) / 1e6,
        "receive_ms_p99": F.percentile_approx(receive, 0.99) / 1e6,
        "send_ms_p50": F.percentile_approx(send, 0.5) / 1e6,
        "send_ms_p99": F.percentile_approx(send, 0.99) / 1e6,
        "copies": _count(is_data & F.col("is_dup").isNotNull()),
        "duplicates": _count(F.col("is_dup")),
        "relayed": _count(F.col("is_relay")),
        "retransmitted_frames": _count(F.col("n_retx") > 0),
    }


def _undisturbed(run: RunDir, hops: DataFrame) -> DataFrame:
    """Hops of the judged span whose wire part is the emulated delay alone: no retransmission, and no access rate."""
    rated = [run.nodes_by_host[host] for host in range(run.underlay.size) if run.underlay.rate_mbit[host] > 0]
    streams = hops.where(F.col("n_retx") > 0).select("conn", "direction", "incarnation").distinct()
    clean = hops.where(
        F.col("tap_tx_last_ns").between(*run.judged_ns)
        & F.col("tap_rx_ns").isNotNull()
        & F.col("asked_delay_ms").isNotNull()
    )
    if rated:
        clean = clean.where(~F.col("src_node").isin(rated) & ~F.col("dst_node").isin(rated))
    return clean.join(F.broadcast(streams), ["conn", "direction", "incarnation"], "anti")


def _wire_errors() -> dict[str, Column]:
    """Of the last byte's passage: |measured - asked|, where there is jitter only what exceeds its plausible range."""
    error = F.abs((F.col("tap_rx_ns") - F.col("tap_tx_last_ns")) / 1e6 - F.col("asked_delay_ms"))
    steady = F.col("asked_jitter_ms") == 0
    excess = F.greatest(error - JITTER_SIGMAS * F.col("asked_jitter_ms"), F.lit(0.0))
    deviation = (F.col("tap_rx_ns") - F.col("tap_tx_last_ns")) / 1e6 - F.col("asked_delay_ms")
    columns = {}
    for name, condition, value in (("steady", steady, error), ("jittered", ~steady, excess)):
        columns[f"{name}_tested"] = _count(condition)
        columns[f"{name}_ms_p50"] = F.percentile_approx(F.when(condition, value), 0.5)
        columns[f"{name}_ms_p99"] = F.percentile_approx(F.when(condition, value), 0.99)
        columns[f"{name}_ms_max"] = F.max(F.when(condition, value))
    columns["jitter_sigmas_std"] = F.stddev(F.when(~steady, deviation / F.col("asked_jitter_ms")))
    return columns


def _coverage(streams: DataFrame, conns: DataFrame, incomplete: list[int]) -> DataFrame:
    """Stream bytes by the logs and by each vantage, a row a connection, direction and vantage."""
    whole = ~F.col("src_node").isin(incomplete) & ~F.col("dst_node").isin(incomplete)
    logged = streams.where(whole & F.col("logged_bytes").isNotNull())
    by_name = logged.groupBy("conn", "direction").agg(
        F.max("incarnation").alias("incarnation"), *(F.max(name).alias(name) for name in ("logged_bytes", "end_bytes"))
    )
    views = [
        conns.select("conn", F.lit(side).alias("direction"), F.col(f"{side}_bytes").alias("seen_bytes"), "missed_bytes")
        for side in ("orig", "resp")
    ]
    seen = views[0].unionByName(views[1])
    return by_name.where("incarnation = 0").join(seen, ["conn", "direction"])


def _coverage_errors() -> dict[str, Column]:
    error = F.greatest(
        F.abs(F.col("logged_bytes") - F.col("end_bytes")),
        F.abs(F.col("seen_bytes") - F.col("end_bytes")),
        F.col("missed_bytes"),
    )
    return {
        "coverage_tested": F.count("*"),
        "coverage_failed": _count(error > 0),
        "coverage_worst_bytes": F.max(error),
        "covered_bytes": F.sum("seen_bytes"),
    }


def _capture_counts() -> dict[str, Column]:
    return {
        "records": F.coalesce(F.sum("packets"), F.lit(0)),
        "dropped": F.coalesce(F.sum("dropped"), F.lit(0)),
        "interfaces": F.count("*"),
        "not_understood": F.coalesce(F.sum("n_not_understood"), F.lit(0)),
        "truncated": F.count_distinct(F.when(F.col("truncated"), F.col("pcap_file"))),
    }


def _agreement(deliveries: Path) -> dict[str, Any]:
    """Latencies by the logs against those by the captures. Read here: two exact quantiles cost Spark seconds."""
    rows = pq.read_table(deliveries, columns=["delivered_ns", "latency_ms", "wire_latency_ms"])
    latency_ms = rows["latency_ms"].drop_null().to_numpy()
    difference_ms = pc.subtract(rows["latency_ms"], rows["wire_latency_ms"]).drop_null().to_numpy()
    return {
        "rows": len(rows),
        "delivered": len(rows) - rows["delivered_ns"].null_count,
        "both": len(difference_ms),
        "negative": int((difference_ms < 0).sum()),
        "most_negative_ms": float(-difference_ms.min()) if len(difference_ms) else None,
        "difference_ms_p50": _quantile(difference_ms, 0.5, "inverted_cdf"),
        "difference_ms_p99": _quantile(difference_ms, 0.99, "inverted_cdf"),
        "before_publication": int((latency_ms < 0).sum()),
        "latency_ms_p50": _quantile(latency_ms, 0.5, "linear"),
        "latency_ms_p99": _quantile(latency_ms, 0.99, "linear"),
    }


def _quantile(values: npt.NDArray[np.float64], share: float, method: Literal["inverted_cdf", "linear"]) -> float | None:
    return float(np.quantile(values, share, method=method)) if len(values) else None


def _publications() -> dict[str, Column]:
    lag = (F.col("publish_ns") - F.col("scheduled_ns")) / 1e6
    return {
        "messages": F.count("*"),
        "subscribers": F.coalesce(F.sum("n_subscribers"), F.lit(0)),
        "with_schedule": F.count("scheduled_ns"),
        "lag_ms_p99": F.percentile_approx(lag, 0.99),
        "lag_ms_max": F.max(lag),
        "early": _count(lag < 0),
    }


def _identity() -> dict[str, Column]:
    classes = ["first_payload_bytes", "duplicate_payload_bytes", "framing_bytes", "control_bytes"]
    classes += ["retransmitted_bytes", "ack_bytes", "header_bytes", "other_bytes"]
    total = sum((F.col(name) for name in classes), F.lit(0))
    error = F.abs(total - F.col("wire_bytes")) + F.greatest(-F.col("other_bytes"), F.lit(0))
    return {
        "identity_tested": F.count("*"),
        "identity_failed": _count(error > 0),
        "identity_worst_bytes": F.max(error),
        "wire_bytes": F.sum("wire_bytes"),
    }


def _connections(frames: DataFrame, conns: DataFrame) -> dict[str, Any]:
    """Connections by their frames in the traces against those with stream bytes in the captures."""
    traced = frames.where(F.col("conn").isNotNull()).select("conn", F.lit(1).alias("in_trace")).distinct()
    seen = conns.where("orig_bytes + resp_bytes > 0").select("conn", F.lit(1).alias("on_wire")).distinct()
    return _one(
        traced.join(seen, "conn", "full"),
        {
            "connections": F.count("*"),
            "only_traced": _count(F.col("on_wire").isNull()),
            "only_on_wire": _count(F.col("in_trace").isNull()),
        },
    )


def _drops(events: DataFrame) -> dict[str, int]:
    """Frames that peers dropped, by reason."""
    drops = events.where(F.col("event") == "drop").groupBy(F.coalesce("reason", F.lit("unsaid")).alias("reason"))
    return {row["reason"]: row["count"] for row in drops.count().collect()}
