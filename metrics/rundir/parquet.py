"""The schema version in the metadata of Parquet files. Files of version 0 do not say theirs."""

from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from metrics.rundir.documents import SCHEMA_VERSION

_KEY: Final = b"trellis.schema_version"

VERSION: Final = {_KEY: str(SCHEMA_VERSION).encode()}
"""The metadata of each Parquet file of a run directory."""


def with_version(table: pa.Table) -> pa.Table:
    """Return the table with the metadata that its file is to have."""
    return table.replace_schema_metadata(VERSION)


def version_of(footer: pq.FileMetaData) -> int:
    """Return the schema version that a Parquet file says."""
    return int((footer.metadata or {}).get(_KEY, 0))
