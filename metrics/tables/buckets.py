"""Rows that are needed together are staged together: each task then reads its own bucket, and no row that it drops.

A *bucket* is a number from 0 to count - 1. Every task that stages rows writes a part per bucket; the task that makes a
share of a table reads the parts of the bucket with the share's number. There are five kinds:

* frames, and what else is about connections, by the two addresses, so that all connections of two hosts are together;
* what nodes did with copies likewise, by the addresses of the node and of its neighbour;
* what is about messages by their number;
* what is about nodes and their links by the node;
* delays inside hosts, and sums of bytes, by the second in which their frames were sent.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from metrics.pcap.flows import number_pair
from metrics.pcap.walk import Ints
from metrics.storage import Place
from metrics.storage.parquet import open_dataset, parts_of
from metrics.tables.columns import Column, group_rows, numbers
from metrics.tables.shares import Share
from metrics.tables.staged import STAGED, ParquetPart
from metrics.tables.timespans import SECOND_NS

_SCATTER: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / the golden ratio: Knuth, The Art of Computer Programming 3, section 6.4."""


def of_connections(conn: Column, count: int) -> Ints:
    """The bucket of each connection, whichever of its ends opened it; 0 where it is null.

    Args:
        conn: connections as ``peer.trace`` names them.
        count: how many buckets there are.
    """
    whole = conn.combine_chunks() if isinstance(conn, pa.ChunkedArray) else conn
    named = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    by_name = np.array(
        [number_pair(*addresses_of(name), count) for name in named.dictionary.to_pylist()] + [0], np.int64
    )
    found: Ints = by_name[named.indices.fill_null(-1).to_numpy()]
    return found


def addresses_of(conn: str) -> tuple[str, str]:
    """The addresses of a connection's ends."""
    first, _, second = conn.partition("-")
    return first.rpartition(":")[0], second.rpartition(":")[0]


def of_neighbours(rows: pa.Table, addresses: Mapping[int, str], count: int) -> Ints:
    """The bucket of the connections of each row's ``node`` and ``peer``; 0 where one is null or has no address."""
    pair, pairs = group_rows(rows, "node", "peer")
    ends = ([addresses.get(node) for node in pairs[name].to_pylist()] for name in ("node", "peer"))
    by_pair = [number_pair(one, other, count) if one and other else 0 for one, other in zip(*ends, strict=True)]
    return np.array(by_pair, np.int64)[pair]


def of_messages(message_id: Column, count: int) -> Ints:
    """The bucket of each message; the same one wherever it is null.

    Numbers are scattered first: those of publishers with a message each differ in their upper 32 bits only.
    """
    scattered = numbers(message_id, -1).view(np.uint64) * _SCATTER >> np.uint64(32)
    found: Ints = (scattered % np.uint64(count)).astype(np.int64)
    return found


def of_nodes(node: Column, count: int) -> Ints:
    """The bucket of each node; the last one where it is null."""
    return numbers(node, -1) % count


def of_seconds(at_ns: Column, zero_ns: int, count: int) -> Ints:
    """The bucket of each instant's second since zero."""
    return (numbers(at_ns) - zero_ns) // SECOND_NS % count


def divide(rows: pa.Table, bucket: Ints, count: int) -> list[pa.Table]:
    """The rows of each bucket, in their order."""
    if count == 1:
        return [rows]
    order = np.argsort(bucket, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    bounds = np.searchsorted(bucket[order], np.arange(count + 1)).tolist()
    return [sorted_rows.slice(first, last - first) for first, last in pairwise(bounds)]


MOST_OPEN: Final = 64
"""So many files of a table are open in a task at most; a bucket's rows beyond them become a file at once."""

MOST_WAITING: Final = 500_000
"""So many rows wait for their row groups at most, in all buckets together."""


class _Parts:
    """The parts of a task that are filled at the same time."""

    def __init__(self) -> None:
        self._parts: list[ParquetPart] = []

    @property
    def waiting(self) -> int:
        """The rows that are not written yet."""
        return sum(each.waiting for each in self._parts)

    def close(self) -> None:
        for part in self._parts:
            part.close()

    def _fill(self, parts: Iterable[ParquetPart], tables: Iterable[pa.Table]) -> None:
        """Add a table to each part, unless it is empty."""
        for part, own in zip(parts, tables, strict=True):
            if len(own):
                part.add(own)
                if part.is_open and sum(each.is_open for each in self._parts) > MOST_OPEN:
                    part.close()
        while self.waiting > MOST_WAITING:
            max(self._parts, key=lambda part: part.waiting).close()


class BucketParts(_Parts):
    """The parts of a task, one or more per bucket (see ``ParquetPart``, which has the other arguments).

    Args:
        folder: of the table.
        part: the number of the task.
        schema: of the rows.
        count: how many buckets there are.
        order: columns by which each row group is sorted.
        compression: how the columns are compressed.
    """

    def __init__(
        self,
        folder: Place,
        part: int | str,
        schema: pa.Schema,
        count: int,
        order: tuple[str, ...] = (),
        compression: str = STAGED["compression"],
    ) -> None:
        super().__init__()
        self._count = count
        paths = (folder / f"part-{part}-{bucket}.parquet" for bucket in range(count))
        self._parts = [ParquetPart(path, schema, order, compression, count) for path in paths]

    def add(self, rows: pa.Table, bucket: Ints) -> None:
        self._fill(self._parts, divide(rows, bucket, self._count))


_HOST: Final = "host"

_HOSTS_OF_A_FILE: Final = 32
"""A capture file of the data plane has so many hosts at most, whose parts a task fills at the same time."""


class HostParts(_Parts):
    """The parts of a task, one or more per host, in folders such as ``host=3``: a query on a host opens no others.

    The files do not have the column ``host``: readers take it from the folder. A row group has the packets of a span
    of time, so that its least and largest instants say whether a query needs it.

    Args:
        folder: of the table.
        part: the number of the task.
        schema: of the rows, with ``host``.
    """

    def __init__(self, folder: Place, part: int, schema: pa.Schema) -> None:
        super().__init__()
        self._folder, self._name = folder, f"part-{part}.parquet"
        self._schema = schema.remove(schema.get_field_index(_HOST))
        self._by_host: dict[int | None, ParquetPart] = {}

    def add(self, rows: pa.Table) -> None:
        hosts = rows[_HOST].unique().to_pylist()
        own = (
            rows.filter(pc.equal(rows[_HOST], host) if host is not None else pc.is_null(rows[_HOST])) for host in hosts
        )
        self._fill([self._part_of(host) for host in hosts], (each.drop_columns([_HOST]) for each in own))

    def _part_of(self, host: int | None) -> ParquetPart:
        part = self._by_host.get(host)
        if part is None:
            path = self._folder / f"{_HOST}={_NO_VALUE if host is None else host}" / self._name
            part = ParquetPart(path, self._schema, ("ts_ns",), "zstd", _HOSTS_OF_A_FILE)
            self._by_host[host] = part
            self._parts.append(part)
        return part


_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive calls the folder of the rows without a value; Spark, Arrow and DuckDB know it."""


def bucket_dataset(
    folder: Place, schema: pa.Schema | None, share: Share, form: ds.FileFormat | str = "parquet"
) -> ds.Dataset:
    """The parts of a share's bucket; all parts where there is only one share.

    Args:
        folder: of parts that tasks wrote for as many buckets as there are shares, or each for its own share.
        schema: of the rows; None = what the parts say, of which there is one at least.
        share: the share.
        form: how the parts are read.
    """
    if share.count == 1:
        return open_dataset(folder, schema, form)
    return open_dataset(parts_of(folder, share.number), schema, form)


def read_bucket(
    folder: Place,
    schema: pa.Schema | None,
    share: Share,
    columns: list[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    """The rows of a share's bucket (see ``bucket_dataset``).

    Args:
        folder: see there.
        schema: see there.
        share: see there.
        columns: those that are read; None = all.
        where: which rows; None = all.
    """
    return bucket_dataset(folder, schema, share).to_table(columns=columns, filter=where)
