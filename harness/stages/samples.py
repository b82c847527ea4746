"""What a Prometheus server has scraped, out of its database into ``prometheus/samples.parquet``."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from harness.stages.prometheus import Prometheus
from metrics.libp2p_names import PREFIX
from metrics.rundir.parquet import label
from metrics.samples import SAMPLES

_MOST_SAMPLES: Final = 1_000_000
"""Of an answer, about: each takes some 25 bytes of JSON."""

_SERIES_PER_TARGET: Final = 10
"""Of a metric, about: peers count frames by kind."""

_MS: Final = 1_000_000
_KEYS: Final = ("job", "instance", "node", "__name__")
"""The labels that have a column of their own."""


def step_s(targets: int, interval_s: float) -> float:
    """Return for how long a time samples are asked for at once: some seconds or more, so that the answer is bounded."""
    return interval_s * max(1, _MOST_SAMPLES // (_SERIES_PER_TARGET * max(targets, 1)))


def fetch_samples(
    server: Prometheus, span_s: tuple[float, float], step: float, virtual_ns: Callable[[int], int]
) -> Iterator[pa.Table]:
    """Yield all samples of a span, in tables of one metric each.

    Prometheus's own ``scrape_*`` metrics are left out, except how long each scrape took, and so is what it records of
    other samples under other names.

    Args:
        server: which has them.
        span_s: from and to, in seconds since the epoch.
        step: for how many seconds samples are asked for at once.
        virtual_ns: the virtual instant of one in ns since the epoch.

    Raises:
        TestbedError: the server does not answer.
    """
    first_ms, last_ms, step_ms = (round(each * 1000) for each in (*span_s, step))
    for metric in server.list_metrics():
        if metric.startswith(("scrape_", PREFIX)) and metric != "scrape_duration_seconds":
            continue
        for after_ms in range(first_ms, last_ms, step_ms):
            until_ms = min(after_ms + step_ms, last_ms)
            found = server.query(f"{metric}[{until_ms - after_ms}ms]", until_ms / 1000)
            for series in found:
                yield _tabulate(series, after_ms, virtual_ns)


def _tabulate(series: Mapping[str, Any], after_ms: int, virtual_ns: Callable[[int], int]) -> pa.Table:
    """Return a series' samples after an instant: whether a range includes its beginning depends on the version."""
    labels = dict(series["metric"])
    job, instance, node, metric = (labels.pop(key, None) for key in _KEYS)
    samples = [(round(at_s * 1000), float(value)) for at_s, value in series["values"]]
    samples = [(at_ms, value) for at_ms, value in samples if at_ms > after_ms]
    own = {"job": job, "instance": instance, "node": None if node is None else int(node), "metric": metric}
    columns = {name: [value] * len(samples) for name, value in own.items()} | {
        "ts_ns": [virtual_ns(at_ms * _MS) for at_ms, _ in samples],
        "labels": [sorted(labels.items())] * len(samples),
        "value": [value for _, value in samples],
    }
    return pa.table([pa.array(columns[field.name], field.type) for field in SAMPLES], schema=SAMPLES)


def write_samples(path: Path, batches: Iterable[pa.Table]) -> int:
    """Write samples, and return how many there are."""
    schema, written = label(SAMPLES), 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for group in _grouped(batches):
            writer.write_table(group.cast(schema))
            written += len(group)
    return written


def _grouped(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables of many rows from tables of few."""
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= _MOST_SAMPLES // 10:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
