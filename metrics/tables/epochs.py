"""The ``epochs`` table: what a protocol that learns its neighbours had learned by each of its epochs."""

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


def epoch_ends(events: pa.Table, adversaries: frozenset[int]) -> list[dict[str, Any]]:
    """Every epoch with its end (the median node's, ns), the honest nodes that ended it and their mean score, in order.

    Args:
        events: node, ts_ns, epoch and score of the ``epoch`` events.
        adversaries: nodes that do not count.
    """
    ended = of_nodes(events, "node", adversaries, others=True)
    ended = ended.filter(pc.is_valid(ended["epoch"])).sort_by([("epoch", "ascending"), ("ts_ns", "ascending")])
    epochs, first = np.unique(numbers(ended["epoch"]), return_index=True)
    found = []
    for epoch, rows in zip(epochs.tolist(), np.split(np.arange(len(ended)), first[1:]), strict=False):
        own = ended.take(pa.array(rows))
        middle = own["ts_ns"][(len(own) + 1) // 2 - 1].as_py()
        nodes, score = pc.count_distinct(own["node"]).as_py(), pc.mean(own["score"]).as_py()
        found.append({"epoch": epoch, "end_ns": middle, "nodes": nodes, "score_mean": score})
    return found


class _Counted(NamedTuple):
    """What a task says of an epoch."""

    messages: int
    expected: int
    unknown: int
    latency_ns: SortedRun  # integers, whose sums do not depend on how many tasks there are


def build_epochs(
    executor: Executor,
    ends: list[dict[str, Any]],
    deliveries: Place,
    adversaries: frozenset[int],
    span_ns: tuple[int, int],
    folder: Place,
) -> list[dict[str, Any]]:
    """The table's rows; none where no node learns.

    A message belongs to the epoch in which it was published. What follows the last epoch that ended is an epoch
    without a score.

    Args:
        executor: reads the parts of the table ``deliveries``.
        ends: ``epoch_ends``.
        deliveries: the table, whose parts have all deliveries of a message.
        adversaries: nodes that do not count.
        span_ns: when the peers started, and the end of the publishing window.
        folder: where tasks write sorted values.
    """
    if not ends:
        return []
    start_ns, end_ns = span_ns
    instants = [start_ns, *(row["end_ns"] for row in ends)]
    if instants[-1] < end_ns:
        ends = [*ends, {"epoch": ends[-1]["epoch"] + 1, "nodes": 0, "score_mean": None}]
        instants.append(end_ns)
    folder.mkdir()
    count = partial(_count_epochs, instants, adversaries, folder)
    counted = executor.map(count, sorted(deliveries.glob("*.parquet")))
    rows: list[dict[str, Any]] = []
    for row, (since_ns, until_ns), found in zip(ends, pairwise(instants), zip(*counted, strict=True), strict=True):
        latency_ms = SortedRuns(each.latency_ns for each in found).distribution(1e6)
        messages, expected, unknown = (sum(counts) for counts in zip(*(each[:3] for each in found), strict=True))
        numbers = DELIVERIES.numbers(Deliveries(messages, expected, latency_ms.count, latency_ms, unknown=unknown))
        rows.append(
            {
                "epoch": row["epoch"],
                "from_ns": since_ns,
                "to_ns": until_ns,
                "nodes": row["nodes"],
                "score_mean": row["score_mean"],
                **{name: numbers[name] for name in ("messages", "deliveries_expected", "delivery_ratio")},
                **{f"latency_ms_{part}": numbers[f"propagation_delay_ms_{part}"] for part in ("mean", "p50", "p99")},
            }
        )
    return rows


def _count_epochs(instants: list[int], adversaries: frozenset[int], folder: Place, part: Place) -> list[_Counted]:
    """Of each epoch the messages, the expected deliveries and the latencies in a part of ``deliveries``."""
    rows = read_parquet(part, columns=["node", "publish_ns", "message_id", "delivered_ns", "known"])
    rows = of_nodes(rows, "node", adversaries, others=True).filter(pc.is_valid(pc.field("publish_ns")))
    epoch = np.searchsorted(np.array(instants), numbers(rows["publish_ns"]), "right") - 1
    found = []
    for number in range(len(instants) - 1):
        own = rows.filter(pa.array(epoch == number))
        path = folder / f"{part.stem}-{number}.npy"
        latency_ns = write_run(path, numbers(pc.subtract(own["delivered_ns"], own["publish_ns"]).drop_null()))
        unknown = len(own) - (pc.sum(own["known"]).as_py() or 0)
        found.append(_Counted(pc.count_distinct(own["message_id"]).as_py(), len(own), unknown, latency_ns))
    return found
