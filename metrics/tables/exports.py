"""Prepare the tables for other programs: labels in their files, views for DuckDB, and CSV."""

import re
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from metrics.pcap.schemas import PACKETS
from metrics.rundir import RunDir, write_file
from metrics.rundir.files import VIEWS_FILE
from metrics.rundir.parquet import label, units_of
from metrics.spreadsheets import plain_column
from metrics.storage import Place
from metrics.storage.attempts import whole
from metrics.storage.parquet import list_parts, open_dataset
from metrics.tables.schemas import arrow_schema

_BATCH_ROWS = 100_000

_OF_HOSTS: Final = "*/*.parquet', hive_partitioning = true, hive_types = {'host': INTEGER}"
"""The parts of a table with a folder per host, as DuckDB reads them."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9 ._:+-]*")
"""Text that cannot end an SQL string or begin a line."""

MEANINGS: Final = {
    "nodes": "a row per node",
    "subscriptions": "a row per time in which a node subscribed to a topic",
    "instances": "a row per time in which a node was up",
    "groups": "a row per message with an expression: the nodes that it was for, and the nodes that it reached",
    "group_links": "a row per pair of nodes between which copies of messages with expressions went",
    "faults": "a row per fault and phase: what became of the messages before, during and after it",
    "underlay_links": "a row per link of the underlay's graph and direction: what crossed it",
    "hops": "a row per transmission of a frame between two nodes",
    "deliveries": "a row per expected delivery; delivered_ns is null where it was not made",
    "copies": "a row per copy of a message that a node sent to another, in the order of messages",
    "disclosures": "a row per adversary that asks",
    "epochs": "a row per epoch of a protocol that learns its neighbours",
    "messages": "a row per published message",
    "pairs": "a row per directed pair of nodes whose hosts exchanged packets",
    "links": "a row per logical link, as a node reports it",
    "wire_links": "a row per logical link, by the frames on the wire",
    "physical_links": "a row per connection and side",
    "sharing": "the sizes of each node's views at each second, by traces and by captures",
    "overlay": "the measures of the overlay at instants",
    "overlay_topics": "a row per topic, at the workload's zero and end",
    "overlay_degrees": "a row per node that is up, at the workload's zero and end",
    "churn_control": "frames other than data by kind, against joins and leaves",
    "conns": "a row per TCP connection",
    "frames": "a row per overlay frame and vantage",
    "overhead": "the bytes that each node sent in each second, by class",
    "control": "the frames other than data that each node sent in each second, by kind",
    "fidelity": "the state of the emulation in each second",
    "stalls": "a row per stall of a processor or of the data plane",
    "checks": "a row per invariant or limit",
    "packets": "a row per captured packet",
}
"""A short description of each table; docs/tables.md has the full one."""


def schema_of_table(name: str) -> pa.Schema:
    """Return the columns of any table of a run, ``packets`` included."""
    return PACKETS if name == "packets" else arrow_schema(name)


def write_views(run: RunDir) -> Place:
    """Write a file that makes a view of each table in DuckDB, with comments on its rows and columns.

    Paths in the file are relative to the tables' folder. The view of a table without parts has no rows.

    Returns:
        The path of the file.
    """
    manifest, plan = run.manifest, run.plan
    facts = {"run_id": manifest.run_id, "name": plan.name, "testbed": manifest.testbed}
    facts |= {"protocol": plan.experiment["protocol"]}
    numbers = {"seed": plan.seed, "zero_ns": manifest.zero_ns, "epoch_offset_ns": manifest.epoch_offset_ns}
    columns = [f"{_quoted(value)} AS {name}" for name, value in facts.items()]
    columns += [f"{value}::BIGINT AS {name}" for name, value in numbers.items()]
    lines = [
        f"-- Views of the tables of a run. In the folder of this file: duckdb -init {VIEWS_FILE}",
        f"CREATE OR REPLACE VIEW run AS SELECT {', '.join(columns)};",
        "-- Seconds from the workload's zero.",
        f"CREATE OR REPLACE MACRO seconds(at_ns) AS (at_ns - {manifest.zero_ns}) / 1e9;",
    ]
    for folder in run.list_tables():
        lines += _view(folder)
    path = run.tables / VIEWS_FILE
    write_file(path, "\n".join([*lines, ""]).encode())
    return path


def _view(folder: Place) -> list[str]:
    """Return the statements that make a table's view."""
    name, schema = folder.stem, label(schema_of_table(folder.stem))
    if parts := list_parts(folder):
        partitioned = parts[0].parent != folder
        files = f"'{folder.name}/{_OF_HOSTS}" if partitioned else f"'{folder.name}/*.parquet'"
        rows = f"SELECT * FROM read_parquet({files})"
    else:
        nulls = [f"CAST(NULL AS {_sql_type(field.type)}) AS {field.name}" for field in schema]
        rows = f"SELECT {', '.join(nulls)} WHERE false"
    lines = [f"CREATE OR REPLACE VIEW {name} AS {rows};", f"COMMENT ON VIEW {name} IS {_own(MEANINGS[name])};"]
    return lines + [f"COMMENT ON COLUMN {name}.{column} IS {_own(unit)};" for column, unit in units_of(schema).items()]


_SQL_TYPES = {
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    pa.float64(): "DOUBLE",
    pa.int32(): "INTEGER",
    pa.int16(): "SMALLINT",
    pa.string(): "VARCHAR",
}


def _sql_type(kind: pa.DataType) -> str:
    return f"{_SQL_TYPES[kind.value_type]}[]" if pa.types.is_list(kind) else _SQL_TYPES[kind]


def _own(text: str) -> str:
    """Return a text of this module as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _quoted(text: str) -> str:
    """Return a text of the run as an SQL expression.

    The text may come from anybody: all characters except letters, digits and those of plain names are written as bytes.
    """
    return f"'{text}'" if _PLAIN.fullmatch(text) else f"decode(unhex('{text.encode().hex()}'))"


def write_csv(run: RunDir, folder: Path) -> list[Path]:
    """Write every table of an analysed run as a CSV file with a header; lists are written with spaces between items.

    Args:
        run: the run.
        folder: the folder of the files ``<table>.csv``; made if it is not there.

    Returns:
        The files.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in (table for table in run.list_tables() if table.stem in MEANINGS):
        rows = open_dataset(table, schema_of_table(table.stem))
        schema = pa.schema([(field.name, _csv_type(field.type)) for field in rows.schema])
        path = folder / f"{table.stem}.csv"
        with whole(path) as attempt, pv.CSVWriter(attempt, schema) as writer:
            for batch in rows.to_batches(batch_size=_BATCH_ROWS):
                writer.write_batch(pa.record_batch([_csv_column(column) for column in batch.columns], schema=schema))
        written.append(path)
    return written


def _csv_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_list(kind) else kind


def _csv_column(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        return pc.binary_join(column.cast(pa.list_(pa.string())), " ")
    return plain_column(column) if pa.types.is_string(column.type) else column
