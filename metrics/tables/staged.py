"""Parquet that lives for the minutes of an analysis: written by the tasks themselves, never through the JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

STAGED = {"compression": "snappy"}
"""What lives for minutes is compressed for speed."""

_GROUP_ROWS = 100_000


class Part:
    """A Parquet file whose row groups are filled from small tables.

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
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, rows: pa.Table) -> None:
        """Append rows."""
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

    def _flush(self) -> None:
        rows = pa.concat_tables(self._waiting)
        if self._order:
            rows = rows.sort_by([(name, "ascending") for name in self._order])
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, self._schema, compression=self._compression)
        self._writer.write_table(rows, row_group_size=_GROUP_ROWS)
        self._waiting, self._rows = [], 0
