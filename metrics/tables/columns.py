"""Convert Arrow columns to NumPy numbers, group them and look values up, for all kernels of tables."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.flows import factorise
from metrics.pcap.walk import Bools, Ints
from metrics.rundir import RunDir
from metrics.rundir.files import table_file
from metrics.storage.parquet import read_parquet

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


def read_columns(run: RunDir, table: str, *columns: str) -> pa.Table:
    """Return some columns of a table of the run.

    Args:
        run: the run.
        table: the name of the table.
        *columns: the names of the columns.
    """
    return read_parquet(run.tables / table_file(table), columns=list(columns))


def numbers(column: Column, missing: int = 0) -> Ints:
    """Return a column's integers, with ``missing`` where it has none."""
    values: Ints = column.cast(pa.int64()).fill_null(missing).to_numpy()
    return values


def says(column: Column, word: str) -> Bools:
    """Return where a column of strings equals a word."""
    return holds(pc.equal(column.cast(pa.string()), word))


def is_own(rows: pa.Table) -> Bools:
    """Return where ``node`` is the publisher of the message ``message_id``."""
    own: Bools = numbers(rows["message_id"], -1) >> 32 == numbers(rows["node"], -1)
    return own


def holds(column: Column) -> Bools:
    """Return where a column of truth values is true, and not null."""
    found: Bools = pc.fill_null(column, fill_value=False).to_numpy(zero_copy_only=False)
    return found


def valid(*columns: Column) -> Bools:
    """Return where all columns have a value."""
    found: Bools = np.logical_and.reduce([pc.is_valid(each).to_numpy(zero_copy_only=False) for each in columns])
    return found


def find(keys: Sequence[Column], wanted: Sequence[Column]) -> pa.Array:
    """Return where each wanted key is first found in ``keys``, column by column; null if not found, or with a null."""
    there = len(keys[0])
    code, count = factorise(*(np.concatenate([numbers(a), numbers(b)]) for a, b in zip(keys, wanted, strict=True)))
    first = np.full(count, there)
    rows = np.flatnonzero(valid(*keys))[::-1]
    first[code[rows]] = rows  # the last assignment remains: the first row
    place = first[code[there:]]
    return pa.array(place, mask=~valid(*wanted) | (place == there))


def conform(columns: Mapping[str, Column], schema: pa.Schema) -> pa.Table:
    """Return columns as a table of a schema; columns that the schema does not name are left out."""
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def codes(column: Column) -> Ints:
    """Return a number for each distinct value of a column of any simple type; -1 where it has none."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded: Ints = whole.dictionary_encode().indices.fill_null(-1).to_numpy()
    return encoded


def group_rows(rows: pa.Table, *columns: str) -> tuple[Ints, pa.Table]:
    """Return the group of each row by some columns, and the columns' values of each group."""
    group, count = factorise(*(codes(rows[name]) for name in columns))
    one = np.empty(count, np.int64)
    one[group] = np.arange(len(group))  # any row of each group
    return group, rows.select(list(columns)).take(pa.array(one))


def of_whole_traces(rows: pa.Table, incomplete: Sequence[int]) -> pa.Table:
    """Return the rows with no node (``src_node``, ``dst_node``) that is, or may be, one with an incomplete trace."""
    if not incomplete:
        return rows
    theirs = pa.array([*incomplete, None], pa.int32())
    ends = (pc.is_in(rows[name], theirs) for name in ("src_node", "dst_node"))
    return rows.filter(pc.invert(pc.or_(*ends)))


def exact_quantile(values: npt.NDArray[np.float64], share: float) -> float | None:
    """Return an exact quantile, which is one of the values; None if there are no values."""
    return float(np.quantile(values, share, method="inverted_cdf")) if len(values) else None


class Groups:
    """Rows in groups: the number of each row's group, and how many groups there are."""

    def __init__(self, group: Ints, count: int) -> None:
        self._group = group
        self._count = count

    def most(self, values: Column, among: Bools | None = None) -> pa.Array:
        """Return the greatest integer of each group (``among`` some rows); null where none has one."""
        return self._pick(np.maximum, np.iinfo(np.int64).min, values, among)

    def least(self, values: Column, among: Bools | None = None) -> pa.Array:
        """Return the least integer of each group (``among`` some rows); null where none has one."""
        return self._pick(np.minimum, np.iinfo(np.int64).max, values, among)

    def total(self, values: Column, among: Bools) -> pa.Array:
        """Return the sum of each group's integers among some rows, exact below 2^53; null where there is none."""
        chosen = valid(values) & among
        group = self._group[chosen]
        sums = np.bincount(group, numbers(values)[chosen], self._count).astype(np.int64)
        return pa.array(sums, mask=np.bincount(group, minlength=self._count) == 0)

    def count(self, among: Bools) -> Ints:
        """Return how many rows of each group are among some rows."""
        return np.bincount(self._group[among], minlength=self._count)

    def _pick(self, better: np.ufunc, worst: int, values: Column, among: Bools | None) -> pa.Array:
        chosen = valid(values) if among is None else valid(values) & among
        group = self._group[chosen]
        best = np.full(self._count, worst)
        better.at(best, group, numbers(values)[chosen])
        nothing = np.ones(self._count, np.bool_)
        nothing[group] = False
        return pa.array(best, mask=nothing)
