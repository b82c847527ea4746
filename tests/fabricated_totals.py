"""The totals of made-up deliveries, copies and hops, by plain loops."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd

from metrics.measures.distribution import Distribution, kept_ranks
from metrics.totals import (
    CopyCounts,
    DeliveryCounts,
    HopTotals,
    MessageTotals,
    NodeDelays,
    RowCount,
    Standouts,
    Totals,
)

SECOND_NS = 1_000_000_000
_NO_ROWS = pd.DataFrame()


def make_totals(
    zero_ns: int,
    deliveries: pd.DataFrame = _NO_ROWS,
    received: pd.DataFrame = _NO_ROWS,
    hops: pd.DataFrame = _NO_ROWS,
    adversaries: Collection[int] = (),
) -> Totals:
    """Count rows of the tables ``deliveries`` and ``hops``, and of received copies, which have a publish_ns."""
    expected = [row for row in deliveries.to_dict("records") if row["node"] not in adversaries]
    made = [pd.notna(row["delivered_ns"]) for row in expected]
    copies: dict[str, dict[int, list[bool]]] = {"second": defaultdict(list), "node": defaultdict(list)}
    for row in received.to_dict("records"):
        for by, key in (("second", (row["publish_ns"] - zero_ns) // SECOND_NS), ("node", row["dst_node"])):
            copies[by][key].append(row["at_relay"])
    by_second, by_node = (
        {key: CopyCounts(len(flags), 0, 0, sum(flags)) for key, flags in sorted(copies[by].items())}
        for by in ("second", "node")
    )
    nothing = distribute([])
    of_hops = {name: distribute(hops.get(column, []), unit) for name, column, unit in _HOPS}
    return Totals(
        MessageTotals(
            messages=0,
            attacked=DeliveryCounts(0, 0),
            repeated=0,
            latency_ms=distribute(row["latency_ms"] for row in expected),
            least_latency_ms=distribute(row.get("least_latency_ms") for row in expected),
            direct_delay_ms=distribute(row["direct_delay_ms"] for row in expected),
            stretch=nothing,
            hops=nothing,
            by_second=_count(((row["publish_ns"] - zero_ns) // SECOND_NS for row in expected), made),
            by_topic=_count((row["topic"] for row in expected), made),
            by_copies={
                key: RowCount(counts.delivered)
                for key, counts in _count((row["copies"] for row in expected), made).items()
                if counts.delivered
            },
            copies_by_second=by_second,
            copies_by_node=by_node,
            copies_by_sender={},
            lag_ms_max={},
            standouts=Standouts((), None, None, _add_delays(expected)),
        ),
        HopTotals(**of_hops, judged_send_ms=nothing, judged_receive_ms=nothing, sent={}),
    )


_HOPS = (
    *(("send_ms", "d_sndbuf_ns", 1e6), ("wire_ms", "d_wire_ns", 1e6), ("receive_ms", "d_rcv_ns", 1e6)),
    ("asked_ms", "asked_delay_ms", 1.0),
)


def distribute(values: Iterable[Any], unit: float = 1.0) -> Distribution:
    """What is kept of those values that are there."""
    known = np.sort([value / unit for value in values if pd.notna(value)])
    ranks = kept_ranks(len(known))
    return Distribution(len(known), float(known.sum()), tuple(ranks), tuple(known[ranks].tolist() if ranks else ()))


def _add_delays(rows: Iterable[dict[str, Any]]) -> dict[int, NodeDelays]:
    """The number and the sum of the known delays, by node."""
    found: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        if pd.notna(row["latency_ms"]):
            found[row["node"]].append(round(row["latency_ms"] * 1e6))
    return {node: NodeDelays(len(each), sum(each)) for node, each in sorted(found.items())}


def _count(keys: Iterable[int], made: Iterable[bool]) -> dict[int, DeliveryCounts]:
    found: dict[int, list[bool]] = defaultdict(list)
    for key, delivered in zip(keys, made, strict=True):
        found[int(key)].append(delivered)
    return {key: DeliveryCounts(len(each), sum(each)) for key, each in sorted(found.items())}
