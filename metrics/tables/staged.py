"""Parquet that tasks write themselves, never through the JVM.

A task may run twice, even at the same time (retries, speculation). So each attempt writes under a name of its own and
renames the file when it is whole.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from metrics.rundir.parquet import VERSION

STAGED = {"compression": "snappy"}
"""What lives for minutes is compressed for speed."""

_GROUP_ROWS = 100_000


def attempt_at(path: Path) -> Path:
    """A name beside ``path`` for one attempt to write it. Readers of the folder leave out names like it."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write a file that is to appear at ``path`` when the block ends well; otherwise it is removed."""
    attempt = attempt_at(path)
    try:
        yield attempt
        attempt.replace(path)
    finally:
        attempt.unlink(missing_ok=True)


def remove_attempts(folder: Path) -> None:
    """Remove what attempts left that were killed."""
    for attempt in folder.glob(".*"):
        attempt.unlink(missing_ok=True)


class ParquetPart:
    """A Parquet file whose row groups are filled from small tables; it appears when it is closed.

    Args:
        path: the file; an earlier attempt's is replaced.
        schema: of the rows.
        order: columns by which each row group is sorted.
        compression: how the columns are compressed.
    """

    def __init__(
        self, path: Path, schema: pa.Schema, order: tuple[str, ...] = (), compression: str = STAGED["compression"]
    ) -> None:
        self._compression = compression
        self._order = order
        self._path = path
        self._attempt = attempt_at(path)
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._rows += len(rows)
        if self._rows >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write what waits. A part without a row is no file."""
        if self._rows:
            self._flush()
        if self._writer is not None:
            self._writer.close()
            self._attempt.replace(self._path)

    def _flush(self) -> None:
        rows = pa.concat_tables(self._waiting)
        if self._order:
            rows = rows.sort_by([(name, "ascending") for name in self._order])
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._attempt, self._schema.with_metadata(VERSION), compression=self._compression
            )
        self._writer.write_table(rows, row_group_size=_GROUP_ROWS)
        self._waiting, self._rows = [], 0
