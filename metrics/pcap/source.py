"""The kernels as a PySpark Python Data Source, ``spark.read.format("pcap")`` (see ``metrics.pcap.tasks``)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metrics.executors.shipping import ship_code
from metrics.flows.reading import FlowTask, list_all, plan_flow_tasks, read_hosts
from metrics.flows.tables import FLOWS
from metrics.pcap.files import Capture
from metrics.pcap.listing import hosts_of, list_captures
from metrics.pcap.schemas import union_schema
from metrics.pcap.tables import Reading
from metrics.pcap.tasks import PARTITION_BYTES, Task, plan_tasks, read_share
from metrics.pushdown import Chosen, allow_pushdown, choose
from metrics.storage import place

_BATCH_ROWS = 1 << 17
_HOSTS: Final = ("host", "vantage_host")
"""The columns with the host that recorded a row."""
_OPTIONS: Final = frozenset(
    ("path", "tables", "traced", "epoch_offset_ns", "origin_ns", "retransmissions", "parallelism", "partition_bytes")
)
_OPTIONS_OF_FLOWS: Final = frozenset(("path", "tables", "hosts", "parallelism"))
_FLOWS: Final = "flows"
"""The table that is made from all captures together."""


class PcapPartition(InputPartition):
    """A task's shares."""

    def __init__(self, task: Task) -> None:
        self.task = task


class PcapDataSource(DataSource):
    """Reads captures (see docs/captures.md for the options)."""

    @classmethod
    def name(cls) -> str:
        return "pcap"

    def schema(self) -> StructType:
        if _wants_flows(self.options):
            return from_arrow_schema(FLOWS)
        return from_arrow_schema(union_schema(_reading(self.options).tables))

    def reader(self, schema: StructType) -> PcapReader | FlowReader:
        """Return a reader; Spark calls this once per query."""
        options = dict(self.options.items())
        return FlowReader(options) if _wants_flows(options) else PcapReader(options)


class FlowPartition(InputPartition):
    """A share of the flows."""

    def __init__(self, task: FlowTask) -> None:
        self.task = task


class FlowReader(DataSourceReader):
    """Plans the tasks that read flows, and runs them."""

    def __init__(self, options: dict[str, str]) -> None:
        self._path, hosts = options.get("path", ""), options.get("hosts")
        self._hosts = {} if hosts is None else read_hosts(place(hosts))
        self._parallelism = int(options.get("parallelism") or os.cpu_count() or 1)

    def partitions(self) -> list[InputPartition]:
        captures, left_out = list_all([self._path])
        for said in left_out:
            warnings.warn(said, stacklevel=2)
        return [FlowPartition(task) for task in plan_flow_tasks(captures, self._hosts, self._parallelism)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FlowPartition)
        yield from partition.task.read().to_batches(_BATCH_ROWS)


class PcapReader(DataSourceReader):
    """Plans the tasks and runs them."""

    def __init__(self, options: dict[str, str]) -> None:
        self._reading = _reading(options)
        self._path = options.get("path", "")
        self._parallelism = int(options.get("parallelism") or os.cpu_count() or 1)
        self._partition_bytes = int(options.get("partition_bytes", PARTITION_BYTES))
        self._chosen = Chosen()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters on hosts. They decide which files are read."""
        self._chosen, left = choose(filters, _HOSTS)
        return left

    def partitions(self) -> list[InputPartition]:
        listing = list_captures(self._path)
        if said := listing.describe_left_out():
            warnings.warn(f"{self._path}: {said}", stacklevel=2)
        captures = [each for each in listing.captures if self._may_have(each)]
        tasks = plan_tasks(captures, self._reading, self._parallelism, self._partition_bytes)
        return [PcapPartition(task) for task in tasks or [()]]

    def _may_have(self, capture: Capture) -> bool:
        """Return whether a capture may have rows that are wanted."""
        if not self._chosen.wanted:
            return True
        hosts = hosts_of(capture)
        return hosts is None or self._chosen.may_have(hosts)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PcapPartition)
        schema = union_schema(self._reading.tables)
        for share in partition.task:
            for name, table in read_share(share, self._reading):
                rows = _conform(name, share.capture.name, table, schema)
                yield from self._chosen.select(rows).to_batches(_BATCH_ROWS)


def register(spark: SparkSession) -> None:
    """Make the format ``pcap`` known to a session, and its code available to the session's executors."""
    ship_code(spark)
    allow_pushdown(spark)
    spark.dataSource.register(PcapDataSource)


def _wants_flows(options: Mapping[str, str]) -> bool:
    """Return whether the options ask for flows."""
    if options.get("tables", "").strip() != _FLOWS:
        return False
    _refuse_unknown(options, _OPTIONS_OF_FLOWS)
    return True


def _refuse_unknown(options: Mapping[str, str], known: frozenset[str]) -> None:
    unknown = {key.lower() for key in options} - known
    if unknown:
        raise ValueError(f"unknown option {', '.join(sorted(unknown))}: expected some of {', '.join(sorted(known))}")


def _reading(options: Mapping[str, str]) -> Reading:
    _refuse_unknown(options, _OPTIONS)
    tables = tuple(each.strip() for each in options.get("tables", "packets").split(",") if each.strip())
    return Reading(
        tables=tables,
        traced=options.get("traced"),
        epoch_offset_ns=int(options.get("epoch_offset_ns", 0)),
        origin_ns=int(options.get("origin_ns", 0)),
        retransmissions=str(options.get("retransmissions", "false")).lower() == "true",
    )


def _conform(name: str, pcap_file: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a file's table as part of the union, with nulls in columns that it does not have."""
    said = {"table": name, "pcap_file": pcap_file}
    columns = [
        pa.repeat(pa.scalar(said[field.name]), len(table))
        if field.name in said
        else table[field.name]
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
