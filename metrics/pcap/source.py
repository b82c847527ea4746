"""``spark.read.format("pcap")``: the kernels as a PySpark Python Data Source.

Files are packed into few tasks, since a Python task costs tens of milliseconds to start. A file that is large beside
the others is shared by several tasks: by hosts where connections are reassembled, by packets otherwise. Each of them
walks all its record headers, a fifth of the work of reassembly, and no border is guessed.
"""

from __future__ import annotations

import glob
import hashlib
import heapq
import io
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from metrics.pcap.files import read_bytes
from metrics.pcap.records import map_file
from metrics.pcap.schemas import union_schema
from metrics.pcap.tables import Reading, read_tables

SUFFIXES: Final = (".pcap", ".pcapng", ".cap")
_BATCH_ROWS = 1 << 17
PARTITION_BYTES = 64 << 20
_HEAD_BYTES = 1 << 20
_ROOMS = ("metrics", "peer")
_OPTIONS = frozenset(
    ("path", "tables", "traced", "epoch_offset_ns", "origin_ns", "retransmissions", "parallelism", "partition_bytes")
)


@dataclass(frozen=True)
class FileShare:
    """A task's share of a file: the ``part``-th of ``parts``."""

    path: str
    size_bytes: int
    part: int = 0
    parts: int = 1


class PcapPartition(InputPartition):
    """A task's shares."""

    def __init__(self, shares: tuple[FileShare, ...]) -> None:
        self.shares = shares


class PcapDataSource(DataSource):
    """Reads captures (see docs/captures.md for the options)."""

    @classmethod
    def name(cls) -> str:
        return "pcap"

    def schema(self) -> StructType:
        return from_arrow_schema(union_schema(_reading(self.options).tables))

    def reader(self, schema: StructType) -> PcapReader:
        """A reader; Spark calls it once a query."""
        return PcapReader(dict(self.options.items()))


class PcapReader(DataSourceReader):
    """Plans the tasks and runs them."""

    def __init__(self, options: dict[str, str]) -> None:
        self._reading = _reading(options)
        self._path = options.get("path", "")
        self._parallelism = int(options.get("parallelism") or os.cpu_count() or 1)
        self._partition_bytes = int(options.get("partition_bytes", PARTITION_BYTES))

    def partitions(self) -> list[InputPartition]:
        """The shares of all files, packed into tasks of about equal bytes."""
        files = find_captures(self._path)
        total = sum(path.stat().st_size for path in files)
        tasks = max(1, min(self._parallelism, -(-total // self._partition_bytes)))
        shares = [share for path in files for share in self._shares(path, max(1, total // tasks))]
        return [PcapPartition(tuple(group)) for group in _pack(shares, tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = union_schema(self._reading.tables)
        for name, table in self.read_tables(partition):
            yield from _conform(name, table, schema).to_batches(_BATCH_ROWS)

    def read_tables(self, partition: InputPartition) -> Iterator[tuple[str, pa.Table]]:
        """The tables of a task, as (name, piece), each in its own schema."""
        assert isinstance(partition, PcapPartition)
        for share in partition.shares:
            reading = replace(self._reading, part=share.part, parts=share.parts)
            yield from read_tables(Path(share.path), reading)

    def _shares(self, path: Path, fair_bytes: int) -> list[FileShare]:
        size = path.stat().st_size
        parts = -(-size // fair_bytes) if size > fair_bytes * 5 // 4 else 1
        if self._reading.reassembles:
            parts = min(parts, _count_hosts(path))
        return [FileShare(str(path), size // parts, part, parts) for part in range(parts)]


def register(spark: SparkSession) -> None:
    """Make the format ``pcap`` known to a session, and its code available to the session's executors."""
    ship_code(spark)
    spark.dataSource.register(PcapDataSource)


def ship_code(spark: SparkSession, rooms: Sequence[str] = _ROOMS) -> None:
    """Make our packages available to a session's executors. They need NumPy, pyarrow and msgspec for themselves."""
    folder = Path(SparkFiles.getRootDirectory()) / "shipped"  # goes when the session does; executors fetch it late
    folder.mkdir(exist_ok=True)
    spark.sparkContext.addPyFile(str(pack_code(folder, rooms)))


def pack_code(folder: Path, rooms: Sequence[str] = _ROOMS) -> Path:
    """A zip in ``folder`` of the packages that executors import, with their data, for ``SparkContext.addPyFile``.

    It is named after its content: Spark refuses a second file of a name, and a second registration is none.
    """
    root = Path(__file__).parents[2]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for room in rooms:
            for path in sorted((root / room).rglob("*")):
                if path.is_file() and path.parent.name != "__pycache__":
                    archive.writestr(zipfile.ZipInfo(str(path.relative_to(root))), path.read_bytes())
    target = folder / f"trellis_{hashlib.sha256(content.getvalue()).hexdigest()[:16]}.zip"
    target.write_bytes(content.getvalue())
    return target


def find_captures(path: str) -> list[Path]:
    """The capture files that a path means: a file, a folder's captures, or a glob pattern's matches.

    Raises:
        FileNotFoundError: there is none.
    """
    plain = path.removeprefix("file://").removeprefix("file:")
    if Path(plain).is_dir():
        found = sorted(each for each in Path(plain).iterdir() if each.suffix in SUFFIXES)
    else:
        found = sorted(Path(each) for each in glob.glob(plain))  # noqa: PTH207 - patterns may be absolute
    if not found:
        raise FileNotFoundError(
            f"option path: no capture at {path!r} (a file, a folder of {'|'.join(SUFFIXES)}, a glob)"
        )
    return found


def _reading(options: Mapping[str, str]) -> Reading:
    unknown = {key.lower() for key in options} - _OPTIONS
    if unknown:
        raise ValueError(f"unknown option {', '.join(sorted(unknown))}: expected some of {', '.join(sorted(_OPTIONS))}")
    tables = tuple(each.strip() for each in options.get("tables", "packets").split(",") if each.strip())
    return Reading(
        tables=tables,
        traced=options.get("traced"),
        epoch_offset_ns=int(options.get("epoch_offset_ns", 0)),
        origin_ns=int(options.get("origin_ns", 0)),
        retransmissions=str(options.get("retransmissions", "false")).lower() == "true",
    )


def _count_hosts(path: Path) -> int:
    """How many hosts the beginning of a file describes: whether sharing it by hosts helps."""
    return max(1, len(read_bytes(map_file(path)[:_HEAD_BYTES]).interfaces))


def _pack(shares: list[FileShare], tasks: int) -> list[list[FileShare]]:
    """The largest share first, each to the task with the least to do."""
    loads: list[tuple[int, int, list[FileShare]]] = [(0, number, []) for number in range(tasks)]
    for share in sorted(shares, key=lambda each: (-each.size_bytes, each.path, each.part)):
        load, number, mine = heapq.heappop(loads)
        heapq.heappush(loads, (load + share.size_bytes, number, [*mine, share]))
    return [mine for _, _, mine in sorted(loads) if mine]


def _conform(name: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table as part of the union: nulls where it has no such column."""
    if "table" not in schema.names:
        return table
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type) for field in schema
    ]
    columns[schema.get_field_index("table")] = pa.repeat(pa.scalar(name), len(table))
    return pa.table(columns, schema=schema)
