"""The names, rows and columns of the DataFrames of runs. docs/dataframes.md is made from it."""

from collections.abc import KeysView
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from metrics.recorded.samples import SAMPLES
from metrics.rundir.parquet import label, units_of
from metrics.tables.exports import MEANINGS as TABLES
from metrics.tables.exports import schema_of_table
from metrics.tables.schemas import schema_of
from metrics.tables.traces import EVENTS

RUN_COLUMNS: Final = schema_of("""
    run_id string, experiment string, protocol string, seed bigint, testbed string, verdict string, zero_ns bigint,
    epoch_offset_ns bigint, schema_version bigint, path string
""")
"""``schema_version`` is the version of the tables; it and ``verdict`` are null before the analysis."""

STREAMS: Final = schema_of("""
    uid string, conn string, direction string, src_node int, dst_node int, stream_bytes bigint, packets bigint,
    ip_bytes bigint, retx_bytes bigint
""")


class Derived(NamedTuple):
    """A DataFrame that is made of a table's rows by SQL expressions."""

    table: str
    columns: tuple[str, ...]


DERIVED: Final = {
    "connections": Derived("conns", ("*",)),
    "streams": Derived(
        "conns",
        (
            "uid",
            "conn",
            """stack(2,
                'orig', orig_node, resp_node, orig_bytes, orig_pkts, orig_ip_bytes, orig_retx_bytes,
                'resp', resp_node, orig_node, resp_bytes, resp_pkts, resp_ip_bytes, resp_retx_bytes
            ) AS (direction, src_node, dst_node, stream_bytes, packets, ip_bytes, retx_bytes)""",
        ),
    ),
}

_RECORDED: Final = {
    "runs": "a row per run: what it was, its verdict, and the schema version of its tables",
    "events": "a row per event that a peer traced",
    "packets": TABLES["packets"],
    "samples": "a row per value that Prometheus scraped",
}
"""DataFrames that need no tables."""

MEANINGS: Final = {
    **_RECORDED,
    "connections": f"{TABLES['conns']}; another name of `conns`",
    "streams": "a row per direction of a TCP connection",
    **TABLES,
}
"""The meaning of a row of each DataFrame."""

OWN_SCHEMAS: Final = {"runs": RUN_COLUMNS, "events": EVENTS, "samples": SAMPLES, "streams": STREAMS}
"""The columns of DataFrames that are not tables."""


def list_names(*, analysed: bool) -> KeysView[str]:
    """Return the names of the DataFrames of runs with tables, or without."""
    return (MEANINGS if analysed else _RECORDED).keys()


def schema_of_frame(name: str) -> pa.Schema:
    """Return the columns of a DataFrame, without the columns that identify the run."""
    return OWN_SCHEMAS.get(name) or schema_of_table("conns" if name == "connections" else name)


def to_spark(schema: pa.Schema) -> StructType:
    """Return a schema for Spark, with the unit of each column in its metadata, as ``unit`` and as ``comment``."""
    units = units_of(label(schema))
    said = {name: {"unit": unit, "comment": unit} for name, unit in units.items()}
    fields = from_arrow_schema(schema).fields
    return StructType([StructField(each.name, each.dataType, True, said.get(each.name)) for each in fields])
