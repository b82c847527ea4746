"""The metadata in the Parquet files of a run directory.

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
    """Return a schema with the metadata for its file: the schema version, and each column's unit."""
    fields = [field.with_metadata({UNIT: unit} if (unit := _unit(field)) else None) for field in schema]
    return pa.schema(fields, {VERSION: str(SCHEMA_VERSION).encode()})


def _unit(field: pa.Field) -> str | None:
    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    return unit_of(field.name) if is_number else None


def labelled(table: pa.Table) -> pa.Table:
    """Return a table for writing, with its schema's ``label``."""
    return table.cast(label(table.schema))


MOST_ROWS: Final = 100_000_000
"""The most rows of a recorded file. Small files can claim any number."""


def read_recorded(path: Place, columns: pa.Schema, optional: Collection[str] = ()) -> pa.Table:
    """Read a Parquet file that the running stage wrote, or that came with a run from somebody else.

    Args:
        path: the file.
        columns: the columns that are needed; a column that is not nullable must have a value in all rows.
        optional: the columns among them that runs of earlier versions do not have.

    Raises:
        DamagedError: it is not such a file.
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
    """Return the schema version in a Parquet file."""
    return int((footer.metadata or {}).get(VERSION, 0))


def units_of(schema: pa.Schema) -> dict[str, str]:
    """Return the units in a file's schema, by column."""
    return {field.name: field.metadata[UNIT].decode() for field in schema if UNIT in (field.metadata or {})}
