"""What the files of a run directory say of themselves, in the metadata of Parquet.

Files of version 0 do not say their version.
"""

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from metrics.rundir.documents import SCHEMA_VERSION
from metrics.rundir.units import unit_of

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


def version_of(footer: pq.FileMetaData) -> int:
    """Return the schema version that a Parquet file says."""
    return int((footer.metadata or {}).get(VERSION, 0))


def units_of(schema: pa.Schema) -> dict[str, str]:
    """Return the units that a file's schema says, by column."""
    return {field.name: field.metadata[UNIT].decode() for field in schema if UNIT in (field.metadata or {})}
