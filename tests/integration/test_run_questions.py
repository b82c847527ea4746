"""The ten questions of docs/questions-of-runs.md: every query runs in PySpark and in DuckDB, with the same answers."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from metrics import open_runs, summary, tables
from metrics.session import session
from tests.fabricate import Fabrication

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs" / "questions-of-runs.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
_, IN_DUCKDB = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two analysed runs in ``runs``."""
    folder = tmp_path_factory.mktemp("questions")
    for name, seed in (("one", 1), ("two", 2)):
        run_dir = Fabrication(seed=seed, relays=True).write(folder / "runs" / "fabricated" / name, run_id=name)
        tables.build(run_dir)
        summary.write(run_dir)
    return folder


@pytest.fixture(scope="module")
def of_spark(folder: Path) -> Iterator[dict[str, Rows]]:
    with session("local[2]", light=True) as spark:
        open_runs(spark, f"{folder}/runs/*/*").create_views()
        yield {query: [tuple(row) for row in spark.sql(query).collect()] for query in QUERIES}


@pytest.fixture(scope="module")
def of_duckdb(folder: Path) -> dict[str, Rows]:
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(IN_DUCKDB, names)
        database: duckdb.DuckDBPyConnection = names["database"]
        return {query: database.sql(query).fetchall() for query in QUERIES}


def test_there_are_ten_questions() -> None:
    assert len(QUERIES) == len(re.findall(r"^## \d+\. ", PAGE, re.MULTILINE)) == 10


@pytest.mark.parametrize("query", QUERIES, ids=range(1, len(QUERIES) + 1))
def test_answers_are_the_same(query: str, of_spark: dict[str, Rows], of_duckdb: dict[str, Rows]) -> None:
    answers = sorted(map(rounded, of_spark[query])), sorted(map(rounded, of_duckdb[query]))
    assert answers[0] == answers[1] != []
    assert {row[0] for row in of_spark[query]} <= {"one", "two"}


def rounded(row: tuple[Any, ...]) -> str:
    """A row with numbers as both engines give them: their sums differ in the last digits."""
    values = [float(f"{float(value):.9g}") + 0.0 if is_number(value) else value for value in row]
    return repr([None if isinstance(value, float) and math.isnan(value) else value for value in values])


def is_number(value: object) -> bool:
    return value is not None and not isinstance(value, str | bool)
