"""``spark.read.format("trace")``: the peers' traces as a PySpark Python Data Source (docs/dataframes.md)."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metrics.pushdown import Chosen, choose
from metrics.storage import Place, place
from metrics.tables.traces import EVENTS, read_events

_TASK_BYTES: Final = 64 << 20
"""A task costs tens of milliseconds: there are fewer tasks than processors if each would read less than this."""


@dataclass
class TracePartition(InputPartition):
    """The traces that a task reads."""

    traces: tuple[Place, ...]


class TraceDataSource(DataSource):
    """Reads the traces in a folder.

    Options: ``path``, the folder, and ``ahead_ns``, how far the clock of each node is ahead, as a JSON object.
    """

    @classmethod
    def name(cls) -> str:
        return "trace"

    def schema(self) -> StructType:
        return from_arrow_schema(EVENTS)

    def reader(self, schema: StructType) -> "TraceReader":
        ahead_ns = json.loads(self.options.get("ahead_ns", "{}"))
        return TraceReader(place(self.options["path"]), {int(node): ns for node, ns in ahead_ns.items()})


class TraceReader(DataSourceReader):
    """Plans the tasks and runs them.

    Args:
        folder: holds the traces, with the names ``<node>.jsonl``.
        ahead_ns: how far the clocks of nodes are ahead of ours; absent = they are not.
    """

    def __init__(self, folder: Place, ahead_ns: dict[int, int]) -> None:
        self._folder, self._ahead_ns = folder, ahead_ns
        self._chosen = Chosen()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters on nodes. They decide which files are read."""
        self._chosen, left = choose(filters, ("node",))
        return left

    def partitions(self) -> list[InputPartition]:
        traces = [path for path in self._folder.glob("*.jsonl") if self._chosen.may_have(_nodes_of(path))]
        traces.sort(key=lambda path: (-path.stat().st_size, path.name))
        size = sum(path.stat().st_size for path in traces)
        tasks = max(1, min(os.cpu_count() or 1, -(-size // _TASK_BYTES)))
        return [TracePartition(tuple(traces[number::tasks])) for number in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TracePartition)
        for path in partition.traces:
            for events in read_events(path, self._ahead_ns):
                rows = events.filter(pc.is_valid(events["event"]))
                yield from self._chosen.select(rows).to_batches()


def _nodes_of(path: Place) -> tuple[int, ...]:
    return (int(path.stem),) if path.stem.isdecimal() else ()
