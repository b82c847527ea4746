"""An analysis through a Spark Connect server, which knows nothing of the client but its queries."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from metrics import tables
from metrics.executors.cluster import MasterError
from metrics.executors.spark import on_spark
from metrics.session import connect_server, session
from tests.fabricate import Fabrication

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with session("local[2]", light=True) as spark, connect_server(spark) as url:
        yield url


def test_its_rows_are_those_of_one_process(server: str, tmp_path: Path) -> None:
    here, there = (Fabrication(seed=1).write(tmp_path / name, run_id="run") for name in ("here", "there"))
    tables.build(here, "here")
    assert tables.build(there, server).startswith(f"by Spark at {server}, 2 cores")
    names = sorted(path.name for path in (here / "tables").glob("*.parquet"))
    assert names == sorted(path.name for path in (there / "tables").glob("*.parquet"))
    for name in names:
        ours, theirs = (pq.read_table(run / "tables" / name) for run in (here, there))
        assert ours.schema == theirs.schema
        assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist())), name


def test_results_are_in_the_order_of_the_items_and_an_error_of_a_task_is_told(server: str) -> None:
    with on_spark(server) as executor:
        assert executor.map(lambda number: number * number, range(7, 0, -1)) == [49, 36, 25, 16, 9, 4, 1]
        assert executor.map(len, []) == []
        with pytest.raises(Exception, match="ZeroDivisionError"):
            executor.map(lambda number: 1 // number, [1, 0])


def test_an_address_without_server_is_one_line() -> None:
    with pytest.raises(MasterError, match=r"^sc://127\.0\.0\.1:1: Spark cannot begin"), on_spark("sc://127.0.0.1:1"):
        pass
