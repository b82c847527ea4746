"""Parquet that tasks write themselves, never through the JVM. Each attempt has its own file (``storage.attempts``)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metrics.rundir.parquet import label
from metrics.storage import Place, StorePath
from metrics.storage.attempts import Attempt
from metrics.storage.parquet import open_dataset

STAGED = {"compression": "snappy"}
"""Files that exist for minutes are compressed for speed."""

GROUP_ROWS, FEWEST_ROWS = 100_000, 5_000

MOST_GROUPS: Final = 100
"""The number of row groups in the file of a part."""


@contextmanager
def temporary_folder(parent: Place, prefix: str) -> Iterator[Place]:
    """Make a folder in another one for the time of the block; its name begins with ``prefix``."""
    if not isinstance(parent, StorePath):
        with TemporaryDirectory(prefix=prefix, dir=parent) as folder:
            yield Path(folder)
        return
    made = parent / f"{prefix}{uuid4().hex}"
    try:
        yield made
    finally:
        made.remove_tree()


def remove_attempts(folder: Place) -> None:
    """Remove the files of attempts that were killed, also in the folders of a table that is partitioned."""
    for each in (folder, *folder.glob("*=*")):
        for attempt in each.glob(".*"):
            attempt.unlink(missing_ok=True)


def read_staged(
    path: Place, schema: pa.Schema, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """Read the rows of a folder of parts, which may be empty, in the order of the parts.

    Args:
        path: the folder.
        schema: the schema of its rows.
        columns: the columns to read; None = all.
        where: selects rows; None = all.
    """
    names = None if columns is None else list(columns)
    return open_dataset(path, schema).to_table(columns=names, filter=where)


class ParquetPart:
    """A Parquet file whose row groups are filled from small tables. The file appears when it is closed.

    Rows that are added after that, or after very many row groups, whose places a writer keeps in memory, become another
    file: its name has ``.1``, ``.2``, ... before the suffix.

    Args:
        path: the file; it replaces the file of an earlier attempt.
        schema: the schema of the rows.
        order: columns by which each row group is sorted.
        compression: how the columns are compressed.
        beside: how many parts are filled at the same time: with many, row groups are smaller.

    Attributes:
        waiting: how many rows wait to be written.
    """

    def __init__(
        self,
        path: Place,
        schema: pa.Schema,
        order: tuple[str, ...] = (),
        compression: str = STAGED["compression"],
        beside: int = 1,
    ) -> None:
        self._group_rows = max(GROUP_ROWS // beside, FEWEST_ROWS)
        self._compression = compression
        self._order = order
        self._path = path
        self._attempt: Attempt | None = None
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._files = self._groups = 0
        self.waiting = 0

    @property
    def is_open(self) -> bool:
        """Whether there is a file that has not appeared yet."""
        return self._writer is not None

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self.waiting += len(rows)
        if self.waiting >= self._group_rows:
            self._flush()
        if self._groups >= MOST_GROUPS:
            self.close()

    def close(self) -> None:
        """Write the rows that wait. A part without a row is no file."""
        if self.waiting:
            self._flush()
        if self._writer is not None and self._attempt is not None:
            self._writer.close()
            self._attempt.publish()
            self._writer, self._groups = None, 0

    def _flush(self) -> None:
        rows = pa.concat_tables(self._waiting)
        if self._order:
            rows = rows.sort_by([(name, "ascending") for name in self._order])
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            suffix = f".{self._files}{self._path.suffix}" if self._files else self._path.suffix
            self._attempt, self._files = Attempt(self._path.with_name(self._path.stem + suffix)), self._files + 1
            self._writer = pq.ParquetWriter(self._attempt.path, label(self._schema), compression=self._compression)
        self._writer.write_table(rows, row_group_size=GROUP_ROWS)
        self._groups += -(-len(rows) // GROUP_ROWS)
        self._waiting, self.waiting = [], 0
