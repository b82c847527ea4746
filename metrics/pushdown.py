"""Use the filters that Spark offers to our Data Sources to choose the files to read."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, In

_SETTING: Final = "spark.sql.python.filterPushdown.enabled"


def allow_pushdown(spark: SparkSession) -> None:
    """Let a session offer its filters to Data Sources in Python, which Spark does not do by default."""
    spark.conf.set(_SETTING, "true")


@dataclass(frozen=True)
class Chosen:
    """The values that a query wants, of the columns that it restricts. The default wants every row."""

    wanted: tuple[tuple[str, frozenset[int]], ...] = ()

    def may_have(self, values: Collection[int], column: str | None = None) -> bool:
        """Return whether rows with these values may be wanted: of one column, or of each that is restricted."""
        return all(not some.isdisjoint(values) for name, some in self.wanted if column in (None, name))

    def select(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are wanted."""
        for name, some in self.wanted:
            column = rows[name]
            rows = rows.filter(pc.is_in(column, pa.array(sorted(some), column.type)))
        return rows


def choose(filters: Iterable[Filter], columns: Collection[str]) -> tuple[Chosen, list[Filter]]:
    """Take the filters that compare one of these columns with integers.

    Returns:
        The filters as ``Chosen``, and the filters that are left to Spark.
    """
    taken: list[tuple[str, frozenset[int]]] = []
    left = []
    for each in filters:
        match each:
            case EqualTo((column,), int() as value) if column in columns:
                taken.append((column, frozenset({value})))
            case In((column,), values) if column in columns and _are_integers(values):
                taken.append((column, frozenset(values)))
            case _:
                left.append(each)
    return Chosen(tuple(taken)), left


def _are_integers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int) for value in values)
