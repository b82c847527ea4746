"""The ``epochs`` table: what a protocol that learns its neighbours has learned by the end of each epoch."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import of_nodes
from metrics.executors import Executor
from metrics.storage import Place
from metrics.tables.columns import numbers
from metrics.tables.spans import measure_spans


def epoch_ends(events: pa.Table, adversaries: frozenset[int]) -> list[dict[str, Any]]:
    """Return every epoch with its end (of the median node, ns), the honest nodes that ended it and their mean score.

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


def build_epochs(
    executor: Executor,
    ends: list[dict[str, Any]],
    deliveries: Place,
    adversaries: frozenset[int],
    span_ns: tuple[int, int],
    folder: Place,
) -> list[dict[str, Any]]:
    """Return the table's rows; none if no node learns.

    A message belongs to the epoch in which it was published. Messages after the last epoch that ended belong to an
    epoch without a score.

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
    measured = measure_spans(executor, instants, deliveries, adversaries, folder)
    return [
        {"epoch": row["epoch"], "nodes": row["nodes"], "score_mean": row["score_mean"], **numbers}
        for row, numbers in zip(ends, measured, strict=True)
    ]
