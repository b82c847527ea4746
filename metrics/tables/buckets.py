"""Stage rows together that are needed together: each task then reads only its own bucket.

A *bucket* is a number from 0 to count - 1. Every task that stages rows writes one part per bucket; the task that makes
a share of a table reads the parts of the bucket with the share's number. There are five kinds of buckets:

* frames, and other rows about connections, by the two addresses, so that all connections of two hosts are together;
* what nodes did with copies, by the addresses of the node and of its neighbour;
* rows about messages, by the number of the message;
* rows about nodes and their links, by the node;
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
    """Return the bucket of each connection, whichever of its ends opened it; 0 where it is null.

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
    """Return the addresses of a connection's ends."""
    first, _, second = conn.partition("-")
    return first.rpartition(":")[0], second.rpartition(":")[0]


def of_neighbours(rows: pa.Table, addresses: Mapping[int, str], count: int) -> Ints:
    """Return the bucket of the connections of each row's ``node`` and ``peer``; 0 if one is null or has no address.

    Args:
        rows: rows with ``node`` and ``peer``.
        addresses: the address of each node.
        count: how many buckets there are.
    """
    pair, pairs = group_rows(rows, "node", "peer")
    ends = ([addresses.get(node) for node in pairs[name].to_pylist()] for name in ("node", "peer"))
    by_pair = [number_pair(one, other, count) if one and other else 0 for one, other in zip(*ends, strict=True)]
    return np.array(by_pair, np.int64)[pair]


def of_messages(message_id: Column, count: int) -> Ints:
    """Return the bucket of each message; the same bucket for all nulls.

    Numbers are scattered first: messages of different publishers may differ only in their upper 32 bits.
    """
    scattered = numbers(message_id, -1).view(np.uint64) * _SCATTER >> np.uint64(32)
    found: Ints = (scattered % np.uint64(count)).astype(np.int64)
    return found


def of_nodes(node: Column, count: int) -> Ints:
    """Return the bucket of each node; the last one where it is null."""
    return numbers(node, -1) % count


def of_seconds(at_ns: Column, zero_ns: int, count: int) -> Ints:
    """Return the bucket of each instant's second since zero.

    Args:
        at_ns: the instants.
        zero_ns: the instant from which seconds are counted.
        count: how many buckets there are.
    """
    return (numbers(at_ns) - zero_ns) // SECOND_NS % count


def divide(rows: pa.Table, bucket: Ints, count: int) -> list[pa.Table]:
    """Return the rows of each bucket, in their order.

    Args:
        rows: any rows.
        bucket: (n,) the bucket of each row.
        count: how many buckets there are.
    """
    if count == 1:
        return [rows]
    order = np.argsort(bucket, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    bounds = np.searchsorted(bucket[order], np.arange(count + 1)).tolist()
    return [sorted_rows.slice(first, last - first) for first, last in pairwise(bounds)]


MOST_OPEN: Final = 64
"""The most files of a table that a task keeps open; further rows of a bucket become a file at once."""

MOST_WAITING: Final = 500_000
"""The most rows that wait for their row groups, in all buckets together."""


class _Parts:
    """The parts that a task fills at the same time."""

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
        folder: the folder of the table.
        part: the number of the task.
        schema: the schema of the rows.
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
"""The most hosts in a capture file of the data plane, whose parts a task fills at the same time."""


class HostParts(_Parts):
    """The parts of a task, one or more per host, in folders such as ``host=3``: queries about a host open only these.

    The files do not have the column ``host``: readers take it from the folder. A row group has the packets of a span of
    time, so that its least and largest instants show whether a query needs it.

    Args:
        folder: the folder of the table.
        part: the number of the task.
        schema: the schema of the rows, with ``host``.
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
"""The name in Hive for the folder of the rows without a value, which Spark, Arrow and DuckDB know."""


def bucket_dataset(
    folder: Place, schema: pa.Schema | None, share: Share, form: ds.FileFormat | str = "parquet"
) -> ds.Dataset:
    """Return the parts of a share's bucket; all parts if there is only one share.

    Args:
        folder: has parts that tasks wrote for as many buckets as there are shares, or each for its own share.
        schema: the schema of the rows; None = the schema of the parts, of which there is at least one.
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
    """Return the rows of a share's bucket (see ``bucket_dataset``).

    Args:
        folder: see ``bucket_dataset``.
        schema: likewise.
        share: likewise.
        columns: the columns to read; None = all.
        where: selects rows; None = all.
    """
    return bucket_dataset(folder, schema, share).to_table(columns=columns, filter=where)
