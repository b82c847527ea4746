"""The ``faults`` table: deliveries before, during and after each fault, and the time to recover from it."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from metrics.adversaries import of_nodes
from metrics.executors import Executor
from metrics.pcap.walk import Ints
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.columns import numbers, valid
from metrics.tables.spans import measure_spans
from topologies.timeline import Change

PHASES: Final = ("before", "during", "after")

STEP_NS: Final = 100_000_000
"""The resolution of the time to recover."""

RECOVERED: Final = 0.99
"""The share of deliveries that must be in time, in the first step after a recovery and in all later ones."""


class FaultSpan(NamedTuple):
    """A fault, and the time around it in which no other one begins or ends.

    Attributes:
        fault: the number of the experiment's entry.
        before_ns: when the time before it begins.
        from_ns: its first instant.
        to_ns: the first instant after it.
        after_ns: the end of the time after it.
    """

    fault: int
    before_ns: int
    from_ns: int
    to_ns: int
    after_ns: int


def find_spans(changes: Sequence[Change], start_ns: int, end_ns: int) -> list[FaultSpan]:
    """Return the faults in order of their entries.

    Args:
        changes: the changes of the network, on the run's clock.
        start_ns: begin of the publishing window.
        end_ns: its end.
    """
    spans = {fault: _extent(changes, fault, end_ns) for fault in sorted({change.fault for change in changes})}
    found = []
    for fault, (from_ns, to_ns) in spans.items():
        others = [span for other, span in spans.items() if other != fault]
        before_ns = max([start_ns, *(until_ns for _, until_ns in others if until_ns <= from_ns)])
        after_ns = min([end_ns, *(since_ns for since_ns, _ in others if since_ns >= to_ns)])
        found.append(FaultSpan(fault, min(before_ns, from_ns), from_ns, to_ns, max(after_ns, to_ns)))
    return found


def _extent(changes: Sequence[Change], fault: int, end_ns: int) -> tuple[int, int]:
    """Return the first instant of a fault, and the first instant after it, which is at most the end of the window."""
    own = [change for change in changes if change.fault == fault]
    ends = [end_ns if change.to_ns is None else change.to_ns for change in own]
    from_ns = min(change.from_ns for change in own)
    return from_ns, max(from_ns, min(max(ends), end_ns))


def build_faults(
    executor: Executor, spans: Sequence[FaultSpan], deliveries: Place, adversaries: frozenset[int], folder: Place
) -> list[dict[str, Any]]:
    """Return the table's rows: three per fault.

    Args:
        executor: reads the parts of the table ``deliveries``.
        spans: ``find_spans``.
        deliveries: the table, whose parts have all deliveries of a message.
        adversaries: nodes that do not count.
        folder: where tasks write sorted values; it is made.
    """
    folder.mkdir()
    rows: list[dict[str, Any]] = []
    for span in spans:
        measured = measure_spans(executor, list(span[1:]), deliveries, adversaries, folder / f"fault-{span.fault}")
        limit_ms = measured[0]["latency_ms_max"]
        recovered_ms = None
        if limit_ms is not None:
            count = partial(_count_steps, span, round(limit_ms * 1e6), adversaries)
            recovered_ms = _find_recovery(executor.map(count, sorted(deliveries.glob("*.parquet"))))
        for phase, numbers_ in zip(PHASES, measured, strict=True):
            own = recovered_ms if phase == "after" else None
            rows.append({"fault": span.fault, "phase": phase, **numbers_, "recovered_ms": own})
    return rows


def _count_steps(span: FaultSpan, limit_ns: int, adversaries: frozenset[int], part: Place) -> Ints:
    """Count the deliveries of messages published in each step after a fault, and those in time, (2, steps)."""
    rows = read_parquet(part, columns=["node", "publish_ns", "delivered_ns", "known"])
    rows = of_nodes(rows, "node", adversaries, others=True).filter(
        pc.is_valid(pc.field("publish_ns")) & pc.field("known")
    )
    step = (numbers(rows["publish_ns"]) - span.to_ns) // STEP_NS
    latency = pc.subtract(rows["delivered_ns"], rows["publish_ns"])
    in_time = valid(latency) & (numbers(latency) <= limit_ns)
    steps = -(-(span.after_ns - span.to_ns) // STEP_NS)
    after = (numbers(rows["publish_ns"]) >= span.to_ns) & (numbers(rows["publish_ns"]) < span.after_ns)
    return np.stack([np.bincount(step[after & chosen], minlength=steps) for chosen in (after, in_time)])


def _find_recovery(counts: Iterable[Ints]) -> float | None:
    """Return how long (ms) after a fault the first step begins from which on almost all deliveries are in time.

    None = there is no such step with a delivery.
    """
    deliveries, in_time = np.sum(list(counts), axis=0)
    from_here = np.cumsum(deliveries[::-1])[::-1], np.cumsum(in_time[::-1])[::-1]
    recovered = np.flatnonzero((from_here[0] > 0) & (from_here[1] >= RECOVERED * from_here[0]))
    return float(recovered[0] * STEP_NS / 1e6) if len(recovered) else None
