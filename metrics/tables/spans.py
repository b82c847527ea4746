"""Measure what became of the messages that were published in spans of time, for tables that compare spans."""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import of_nodes
from metrics.executors import Executor
from metrics.measures.deliveries import DELIVERIES, Deliveries
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.columns import numbers
from metrics.tables.runs import SortedRun, SortedRuns, write_run


class _Counted(NamedTuple):
    """What a task finds about a span."""

    messages: int
    expected: int
    unknown: int
    latency_ns: SortedRun  # integers, whose sums do not depend on how many tasks there are


def measure_spans(
    executor: Executor, instants: list[int], deliveries: Place, adversaries: frozenset[int], folder: Place
) -> list[dict[str, Any]]:
    """Return what became of the messages of each span, by the columns that tables of spans share.

    The columns are ``from_ns``, ``to_ns``, ``messages``, ``deliveries_expected``, ``delivery_ratio`` and
    ``latency_ms_*``.

    Args:
        executor: reads the parts of the table ``deliveries``.
        instants: the ends of the spans, in order: a span begins where the one before it ends.
        deliveries: the table, whose parts have all deliveries of a message.
        adversaries: nodes that do not count.
        folder: where tasks write sorted values; it is made.
    """
    folder.mkdir()
    counted = executor.map(partial(_count, instants, adversaries, folder), sorted(deliveries.glob("*.parquet")))
    rows = []
    for (since_ns, until_ns), found in zip(pairwise(instants), zip(*counted, strict=True), strict=True):
        latency_ms = SortedRuns(each.latency_ns for each in found).distribution(1e6)
        messages, expected, unknown = (sum(counts) for counts in zip(*(each[:3] for each in found), strict=True))
        numbers = DELIVERIES.numbers(Deliveries(messages, expected, latency_ms.count, latency_ms, unknown=unknown))
        rows.append(
            {
                "from_ns": since_ns,
                "to_ns": until_ns,
                **{name: numbers[name] for name in ("messages", "deliveries_expected", "delivery_ratio")},
                **{f"latency_ms_{part}": numbers[f"propagation_delay_ms_{part}"] for part in ("mean", "p50", "p99")},
                "latency_ms_max": latency_ms.max() if len(latency_ms) else None,
            }
        )
    return rows


def _count(instants: list[int], adversaries: frozenset[int], folder: Place, part: Place) -> list[_Counted]:
    """Count the messages, the expected deliveries and the latencies of each span in a part of ``deliveries``."""
    rows = read_parquet(part, columns=["node", "publish_ns", "message_id", "delivered_ns", "known"])
    rows = of_nodes(rows, "node", adversaries, others=True).filter(pc.is_valid(pc.field("publish_ns")))
    span = np.searchsorted(np.array(instants), numbers(rows["publish_ns"]), "right") - 1
    found = []
    for number in range(len(instants) - 1):
        own = rows.filter(pa.array(span == number))
        path = folder / f"{part.stem}-{number}.npy"
        latency_ns = write_run(path, numbers(pc.subtract(own["delivered_ns"], own["publish_ns"]).drop_null()))
        unknown = len(own) - (pc.sum(own["known"]).as_py() or 0)
        found.append(_Counted(pc.count_distinct(own["message_id"]).as_py(), len(own), unknown, latency_ns))
    return found
