"""What the files of a run directory say of themselves, in the metadata of Parquet.

Files of version 0 do not say their version.
"""

from collections.abc import Collection
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from metrics.rundir.documents import SCHEMA_VERSION
from metrics.rundir.reading import DamagedError
from metrics.rundir.units import unit_of
from metrics.storage import Place
from metrics.storage.names import UnreadableError
from metrics.storage.parquet import read_footer, read_parquet

VERSION: Final = b"trellis.schema_version"
"""The key of the schema version in the metadata of a file."""
UNIT: Final = b"unit"
"""The key of a column's unit in the metadata of its field."""


def label(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the metadata that its file is to have: the schema version, and each column's unit."""
    fields = [field.with_metadata({UNIT: unit} if (unit := _unit(field)) else None) for field in schema]
    return pa.schema(fields, {VERSION: str(SCHEMA_VERSION).encode()})


def _unit(field: pa.Field) -> str | None:
    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return unit_of(field.name) if is_number else None


def labelled(table: pa.Table) -> pa.Table:
    """Return a table as it is to be written, with its schema's ``label``."""
    return table.cast(label(table.schema))


MOST_ROWS: Final = 100_000_000
"""Of a recorded file. Small files can claim as many as they like."""


def read_recorded(path: Place, columns: pa.Schema, optional: Collection[str] = ()) -> pa.Table:
    """Read a Parquet file that the running stage wrote, or whoever made the run.

    Args:
        path: the file.
        columns: those that are needed; values of one that is not nullable are there in all rows.
        optional: those of them that runs of earlier versions do not have.

    Raises:
        DamagedError: it is no such file.
    """
    try:
        rows = read_footer(path).num_rows
        if rows > MOST_ROWS:
            raise ValueError(f"expected at most {MOST_ROWS:,} rows, got {rows:,}")
        table = read_parquet(path)
        for field in columns:
            if field.name in table.column_names:
                place, column = table.schema.get_field_index(field.name), table[field.name].cast(field.type)
                if column.null_count and not field.nullable:
                    raise ValueError(f"column {field.name} has nulls")
                table = table.set_column(place, field.name, column)
            elif field.name not in optional:
                raise ValueError(f"column {field.name} is missing")
    except UnreadableError:
        raise
    except (ValueError, pa.ArrowException) as error:
        raise DamagedError(path, error) from None
    return table


def version_of(footer: pq.FileMetaData) -> int:
    """Return the schema version that a Parquet file says."""
    return int((footer.metadata or {}).get(VERSION, 0))


def units_of(schema: pa.Schema) -> dict[str, str]:
    """Return the units that a file's schema says, by column."""
    return {field.name: field.metadata[UNIT].decode() for field in schema if UNIT in (field.metadata or {})}
