"""Read Parquet at a place."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metrics.storage.names import StoreError, UnreadableError
from metrics.storage.paths import Place, StorePath

if TYPE_CHECKING:
    # Functions that open datasets import it and acero: both import pandas, which takes some tenths of a second of a
    # processor, and many processes read no table.
    import pyarrow.dataset as ds

_READ_AHEAD = 2
"""How many pieces of a table are read before they are needed."""


def read_parquet(path: Place, columns: Sequence[str] | None = None, schema: pa.Schema | None = None) -> pa.Table:
    """Read a file, or a folder of parts.

    Args:
        path: the file or folder.
        columns: the columns to read; None = all.
        schema: the schema of the rows; needed if a folder may be without parts. None = the schema in the files.
    """
    import pyarrow.dataset as ds

    names = None if columns is None else list(columns)
    with _naming(path):
        if isinstance(path, StorePath):
            return open_dataset(path, schema).to_table(columns=names)
        return pq.read_table(path, columns=names, schema=schema, partitioning=ds.partitioning(flavor="hive"))


def open_dataset(
    source: Place | Sequence[Place], schema: pa.Schema | None = None, form: "ds.FileFormat | str" = "parquet"
) -> "ds.Dataset":
    """Open a dataset of a file, of a folder's parts, or of some files of one place, in the order of their names.

    Parts may be in folders whose names have the value of a column (``host=3``, as in Hive).

    Args:
        source: the file, the folder, or the files.
        schema: the schema of the rows; needed if there may be no file. None = the schema in the files.
        form: how the files are read.

    Raises:
        FileNotFoundError: there is no file, and no schema says which columns there are.
    """
    import pyarrow.dataset as ds

    if isinstance(source, StorePath):
        files: Sequence[Place] = [source] if source.is_file() else list_parts(source)
        if not files and schema is None:
            raise FileNotFoundError(f"{source}: there is no Parquet file")
    elif isinstance(source, Sequence):
        files = source
    else:
        return ds.dataset(source, schema=schema, format=form, partitioning="hive")
    if not files:
        return ds.dataset([], schema=schema) if schema is None else ds.dataset(schema.empty_table())
    first = files[0]
    if isinstance(first, StorePath):
        keys = [file.key for file in files if isinstance(file, StorePath)]
        hive = {"partitioning": "hive", "partition_base_dir": source.key} if isinstance(source, StorePath) else {}
        return ds.dataset(keys, schema=schema, format=form, filesystem=first.filesystem, **hive)
    return ds.dataset([str(file) for file in files], schema=schema, format=form)


def group_parquet(
    path: Place,
    schema: pa.Schema,
    keys: Sequence[str],
    values: Sequence[tuple[str, str]] = (),
    where: pc.Expression | None = None,
) -> pa.Table:
    """Group the rows of a file, or of a folder of parts, which are read piece by piece: only groups are in memory.

    Args:
        path: the file or folder.
        schema: the schema of the rows.
        keys: the columns by whose values rows are grouped.
        values: columns, and how to combine them in a group: ``sum``, ``mean``, ``max``, ... (see Arrow).
        where: selects rows; None = all.

    Returns:
        A row per group in the order of the keys: the keys, ``count`` (of its rows), and the values under their columns'
        names.
    """
    from pyarrow import acero

    names = [*keys, *(column for column, _ in values)]
    chosen = where if where is not None else pc.scalar(value=True)
    aggregates = [(column, f"hash_{function}", None, column) for column, function in values]
    counted: tuple[list[str], str, None, str] = ([], "hash_count_all", None, "count")
    with _naming(path):
        steps = [
            acero.Declaration("scan", acero.ScanNodeOptions(open_dataset(path, schema), filter=chosen)),
            acero.Declaration("filter", acero.FilterNodeOptions(chosen)),
            acero.Declaration("aggregate", acero.AggregateNodeOptions([counted, *aggregates], list(keys))),
        ]
        found = acero.Declaration.from_sequence(steps).to_table()
    return found.select([*keys, "count", *names[len(keys) :]]).sort_by([(name, "ascending") for name in keys])


def scan_parquet(
    path: Place,
    schema: pa.Schema,
    columns: Sequence[str],
    where: pc.Expression | None = None,
    parts: Sequence[Place] | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a file, or of a folder of parts, piece by piece: few pieces are in memory at a time.

    Row groups whose least and largest values show that no row is selected are not read.

    Args:
        path: the file or folder; nothing is yielded if it is missing.
        schema: the schema of the rows.
        columns: the columns to read.
        where: selects rows; None = all.
        parts: the parts of the folder to read; None = all.
    """
    if not path.exists():
        return
    with _naming(path):
        pieces = open_dataset(path if parts is None else parts, schema).to_batches(
            columns=list(columns), filter=where, batch_readahead=_READ_AHEAD, fragment_readahead=1
        )
        for piece in pieces:
            if piece.num_rows:
                yield pa.Table.from_batches([piece])


def parts_of(folder: Place, bucket: int) -> list[Place]:
    """Return the parts of a bucket: files whose names end with its number, or with that, a point and another number."""
    parts: list[Place] = sorted(folder.glob("part-*.parquet"), key=lambda part: part.name)
    return [part for part in parts if part.stem.rpartition("-")[2].partition(".")[0] == str(bucket)]


def read_footer(path: Place) -> pq.FileMetaData:
    """Read the metadata of a file."""
    with _naming(path):
        if isinstance(path, StorePath):
            return pq.read_metadata(path.key, filesystem=path.filesystem)
        return pq.read_metadata(path)


@contextmanager
def _naming(path: Place) -> Iterator[None]:
    """Name the file that Arrow cannot read.

    Raises:
        UnreadableError: it cannot; a file that is missing stays a ``FileNotFoundError``.
    """
    try:
        yield
    except (FileNotFoundError, StoreError):
        raise
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(path.parent, path.name, error) from None


def list_parts(folder: Place) -> list[Place]:
    """Return the parts in a folder and the folders in it, without hidden files, which pyarrow leaves out, too."""
    found: Iterable[Place] = folder.walk() if isinstance(folder, StorePath) else sorted(folder.rglob("*.parquet"))
    return [each for each in found if each.suffix == ".parquet" and not each.name.startswith((".", "_"))]
