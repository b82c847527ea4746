"""Run kernels as tasks: each task makes its share of tables from staged rows, and writes it as Parquet.

Rows that Spark joins and groups cost several times as much; see ADR 0008.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from metrics.executors import Executor
from metrics.rundir.parquet import labelled
from metrics.storage import Place
from metrics.storage.attempts import whole
from metrics.tables.columns import numbers
from metrics.tables.staged import remove_attempts

LEAST_ROWS, MOST_ROWS = 200_000, 2_000_000
GROUP_ROWS: Final = 100_000
"""The rows of a row group."""

PIECE_ROWS: Final = 3_000_000
"""A share with more rows is made in pieces of at most this many: shares have the same size only on average."""

Rows: TypeAlias = "pa.Table | list[pa.Table]"
Tables: TypeAlias = "Mapping[str, Rows]"
Made: TypeAlias = "Tables | Iterator[Tables]"


@dataclass(frozen=True)
class Share:
    """The rows of a table whose key leaves the remainder ``number`` when divided by ``count``, or a piece of them."""

    number: int = 0
    count: int = 1
    piece: int = 0

    @property
    def name(self) -> str:
        """The part of the share in the names of its files."""
        return f"{self.number}.{self.piece}" if self.piece else str(self.number)


def all_shares(count: int) -> list[Share]:
    """Return ``count`` shares, which together have all rows."""
    return [Share(number, count) for number in range(count)]


def count_shares(workers: int, rows: int) -> int:
    """Return the number of shares for a number of rows; a worker takes several shares if it would hold too much."""
    fitting = -(-rows // MOST_ROWS)
    return -(-fitting // workers) * workers if fitting > workers else max(1, min(workers, rows // LEAST_ROWS), fitting)


def of_share(rows: pa.Table, key: str, share: Share) -> pa.Table:
    """Return the rows of a share, by a column of integers. Rows without a value are in the last share.

    Args:
        rows: any rows.
        key: the column of integers.
        share: the share.
    """
    return rows.filter(pa.array(numbers(rows[key], -1) % share.count == share.number)) if share.count > 1 else rows


def write_shares(
    executor: Executor,
    make: Callable[[Share], Made],
    targets: Mapping[str, Place],
    count: int = 1,
    group_rows: int = GROUP_ROWS,
) -> None:
    """Write tables as folders of parts, one task per share.

    Args:
        executor: runs the tasks.
        make: makes a share of every table, by name, or yields its pieces, of which there is at least one.
        targets: the folders of the tables; none of them may exist yet.
        count: how many shares there are.
        group_rows: the rows of a row group.
    """
    for target in targets.values():
        target.mkdir()

    def write(share: Share) -> None:
        made = make(share)
        for piece, tables in enumerate([made] if isinstance(made, Mapping) else made):
            write_share(tables, targets, replace(share, piece=piece), group_rows)

    executor.map(write, all_shares(count))
    for target in targets.values():
        remove_attempts(target)


def write_share(
    tables: Mapping[str, Rows], targets: Mapping[str, Place], share: Share, group_rows: int = GROUP_ROWS
) -> None:
    """Write one share's part of each table.

    Args:
        tables: name -> rows, or the rows of each bucket (``metrics.tables.buckets``), each a part if there are any.
        targets: name -> the table's folder.
        share: which share it is.
        group_rows: the rows of a row group.
    """
    for name, rows in tables.items():
        parts = {f"part-{share.name}.parquet": rows}
        if isinstance(rows, list):
            parts = {f"part-{share.name}-{bucket}.parquet": own for bucket, own in enumerate(rows) if len(own)}
        for part, own in parts.items():
            with whole(targets[name] / part) as path:
                pq.write_table(labelled(own), path, compression="zstd", row_group_size=group_rows)


def written_shares(folder: Place, count: int) -> list[Share]:
    """Return the shares, or pieces of shares, of which a table of ``count`` shares was made, in order."""
    names = (path.stem.removeprefix("part-").partition(".") for path in folder.glob("part-*.parquet"))
    pieces = sorted((int(number), int(piece or 0)) for number, _, piece in names)
    return [Share(number, count, piece) for number, piece in pieces]
