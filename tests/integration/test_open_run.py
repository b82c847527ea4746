"""Runs as DataFrames: the same rows in a local session, through a Connect server, and on a standalone cluster.

All that needs a light session of Spark is tested here, since its start takes most of the time: an analysis through a
Connect server, which knows nothing of the client but its queries, and the ten questions of docs/questions-of-runs.md:
every query runs in PySpark and in DuckDB, with the same answers.
"""

import json
import math
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from metrics import open_run, open_runs, summary, tables
from metrics.dataframes import OpenRuns
from metrics.executors.cluster import MasterError
from metrics.executors.spark import on_spark
from metrics.recorded.samples import SAMPLES
from metrics.rundir import RunDir, RunDirError
from metrics.rundir.files import SAMPLES_FILE
from metrics.session import connect_server, session
from metrics.tables import staged
from metrics.tables.schemas import TABLES
from metrics.totals import read_totals
from tests.examples import long_unless
from tests.fabricate import Fabrication
from tests.opened_rows import COMPARED, digest_rows
from tests.standalone import MASTER, run_on_cluster

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "dataframes.md"
QUESTIONS = (DOCS / "questions-of-runs.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", QUESTIONS, re.DOTALL)
_, IN_DUCKDB = re.findall(r"```python\n(.*?)```", QUESTIONS, re.DOTALL)
QUICKSTART = "20261128T120000Z-seed1"


@contextmanager
def small_row_groups() -> Iterator[None]:
    """Let small tables have as many row groups as large ones."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("GROUP_ROWS", "FEWEST_ROWS"):
            patched.setattr(staged, name, 20)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two analysed runs, one without tables, and a folder that is no run."""
    folder = tmp_path_factory.mktemp("opened")
    for name, seed in ((QUICKSTART, 1), ("it's", 2)):
        run_dir = Fabrication(seed=seed).write(folder / "runs" / "quickstart" / name, run_id=name)
        with small_row_groups():
            tables.build(run_dir, "here", packets=True)
        summary.write(run_dir)
    Fabrication(seed=3).write(folder / "raw", run_id="raw")
    (folder / "runs" / "quickstart" / "empty").mkdir()
    return folder


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("local[2]", light=True) as spark:
        yield spark


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[str]:
    """A Connect server on loopback, in the JVM of the classic session."""
    with connect_server(spark) as url:
        yield url


@pytest.fixture(scope="module")
def connected(server: str) -> Iterator[ConnectSession]:
    """A client of the Connect server."""
    client = ConnectSession.builder.remote(server).create()
    try:
        yield client
    finally:
        client.stop()


@pytest.fixture(scope="module")
def run(spark: SparkSession, folder: Path) -> OpenRuns:
    return open_run(spark, folder / "runs" / "quickstart" / QUICKSTART)


@pytest.fixture(scope="module")
def runs(spark: SparkSession, folder: Path) -> OpenRuns:
    with pytest.warns(UserWarning, match=r"1 of 3 matches have no manifest.json and are left out"):
        return open_runs(spark, f"{folder}/runs/*/*")


def plan_of(frame: Any, capsys: pytest.CaptureFixture[str]) -> str:
    frame.explain("formatted")
    return capsys.readouterr().out


def sorted_rows(frame: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.collect())


def test_a_table_has_its_rows_and_units(run: OpenRuns, folder: Path) -> None:
    stored = pq.read_table(folder / "runs" / "quickstart" / QUICKSTART / "tables" / "hops.parquet")
    assert sorted_rows(run.hops) == sorted(repr(tuple(row.values())) for row in stored.to_pylist())
    assert run["hops"].schema["d_wire_ns"].metadata == {"unit": "ns", "comment": "ns"}
    assert run.hops.schema["conn"].metadata == {}
    assert (
        run.events.schema["ts_ns"].metadata == run.packets.schema["ts_ns"].metadata == {"unit": "ns", "comment": "ns"}
    )


def test_copies_of_an_earlier_version_are_those_of_its_hops(
    spark: SparkSession, run: OpenRuns, folder: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(folder / "runs" / "quickstart" / QUICKSTART, tmp_path / "run"))
    shutil.rmtree(path / "tables" / "copies.parquet")
    earlier = open_run(spark, path)
    assert sorted_rows(earlier.copies) == sorted_rows(run.copies) != []
    assert earlier.copies.schema == run.copies.schema


def test_recordings_are_read_without_tables(spark: SparkSession, folder: Path) -> None:
    fabrication = Fabrication(seed=3)
    raw = open_run(spark, folder / "raw")
    assert set(raw) == {"runs", "events", "packets", "samples"}
    assert raw.packets.count() == len(fabrication.packets)
    assert raw.events.count() == sum(map(len, fabrication.traces.values()))
    assert raw.packets.where("host = 2").count() == sum(1 for packet in fabrication.packets if packet[1] == 2)
    with pytest.raises(RunDirError, match="hops is made of tables, and the run has none; trellis tables"):
        _ = raw.hops
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = raw.nothing


def test_samples_are_those_of_prometheus(spark: SparkSession, folder: Path) -> None:
    rows = [(5, "peer", "10.0.0.1:9100", 1, "trellis_sent_bytes_total", [("kind", "data")], 7.0)]
    rows += [(6, "dataplane", "10.0.0.9:9100", None, "up", [], 1.0)]
    run_dir = Fabrication(seed=4).write(folder / "scraped", run_id="scraped")
    (run_dir / SAMPLES_FILE).parent.mkdir()
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SAMPLES, strict=True)]
    pq.write_table(pa.table(columns, schema=SAMPLES), run_dir / SAMPLES_FILE)
    opened = open_run(spark, run_dir)
    assert sorted(map(tuple, opened.samples.collect())) == [(*row[:5], dict(row[5]), row[6]) for row in rows]
    [row] = opened.samples.where("labels['kind'] = 'data'").collect()
    assert row.value == 7
    assert open_run(spark, folder / "raw").samples.count() == 0
    assert opened.samples.schema["ts_ns"].metadata["unit"] == "ns"


def test_rows_of_several_runs_say_their_run(runs: OpenRuns, run: OpenRuns, folder: Path) -> None:
    rows = runs.deliveries.groupBy("run_id", "experiment", "protocol", "seed").count().collect()
    protocol = RunDir(folder / "runs" / "quickstart" / QUICKSTART).plan.experiment["protocol"]
    facts = {(row.run_id, row.experiment, row.protocol, row.seed) for row in rows}
    assert facts == {(name, "fabricated", protocol, 1) for name in (QUICKSTART, "it's")}
    mine = runs.deliveries.where(f"run_id = '{QUICKSTART}'").drop("run_id", "experiment", "protocol", "seed")
    assert sorted_rows(mine) == sorted_rows(run.deliveries)
    assert runs.hops.schema["d_wire_ns"].metadata == {"unit": "ns", "comment": "ns"}
    assert sorted_rows(runs.runs.selectExpr("run_id", "schema_version", "verdict IS NULL")) == sorted(
        repr((name, 1, False)) for name in (QUICKSTART, "it's")
    )


def test_streams_are_the_directions_of_connections(run: OpenRuns) -> None:
    ends = {(row.uid, "orig"): (row.orig_node, row.orig_bytes) for row in run.connections.collect()}
    ends |= {(row.uid, "resp"): (row.resp_node, row.resp_bytes) for row in run.conns.collect()}
    assert {(row.uid, row.direction): (row.src_node, row.stream_bytes) for row in run.streams.collect()} == ends
    assert run.streams.schema["stream_bytes"].metadata["unit"] == "bytes"


def test_a_query_reads_the_runs_and_nodes_that_it_names(
    spark: SparkSession, run: OpenRuns, runs: OpenRuns, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "PushedFilters: [EqualTo(node,3)]" in plan_of(run.events.where("node = 3"), capsys)
    assert "EqualTo(host,3)" in plan_of(open_run(spark, folder / "raw").packets.where("host = 3"), capsys)
    assert "GreaterThan(log_send_ns,7)" in plan_of(run.hops.where("log_send_ns > 7"), capsys)
    assert plan_of(runs.hops, capsys).count("Location: InMemoryFileIndex") == 2
    one = plan_of(runs.hops.where(f"run_id = '{QUICKSTART}' AND src_node = 3"), capsys)
    assert one.count("Location: InMemoryFileIndex") == 1
    assert "EqualTo(src_node,3)" in one


def test_packets_are_pruned_by_host_and_time(connected: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the files only the host's are opened, and of these only the row groups of the span are read."""
    path = folder / "runs" / "quickstart" / QUICKSTART
    stored = pq.read_table(path / "tables" / "packets.parquet", columns=["ts_ns", "host"]).to_pandas()
    of_host = stored[stored["host"] == 3].sort_values("ts_ns")["ts_ns"]
    first, last = int(of_host.iloc[45]), int(of_host.iloc[54])
    frame = open_run(connected, path).packets.where(f"host = 3 AND ts_ns BETWEEN {first} AND {last}")
    assert len(frame.collect()) == of_host.between(first, last).sum()
    _, steps = frame.executionInfo.metrics.extract_graph()
    [scan] = [step for step in steps.values() if "Scan" in step.name]
    counted = {metric.name: metric.value for metric in scan.metrics}
    files = list((path / "tables" / "packets.parquet").rglob("*.parquet"))
    assert counted["numFiles"] == 1 < len({file.parent for file in files}) == stored["host"].nunique()
    assert 10 <= counted["numOutputRows"] <= 40 < len(of_host), "one row group of 20 rows, or two"
    plan = plan_of(frame, capsys)
    assert re.search(r"PartitionFilters: \[.*host#\d+ = 3", plan)
    assert re.search(rf"PushedFilters: \[.*GreaterThanOrEqual\(ts_ns,{first}\).*LessThanOrEqual\(ts_ns,{last}\)", plan)


OPEN_ON_CLUSTER = """
import json, os, sys

del os.environ["PYTHONPATH"]  # known to the driver alone: workers have our code from it or not at all
from pyspark.sql.connect.session import SparkSession

from metrics import open_run
from metrics.session import connect_server, session
from tests.opened_rows import digest_rows

with session(sys.argv[1], light=True) as spark:
    print(json.dumps(digest_rows(open_run(spark, sys.argv[2]))))
    with connect_server(spark) as url:
        client = SparkSession.builder.remote(url).create()
        print(json.dumps(digest_rows(open_run(client, sys.argv[2]))))
        client.stop()
"""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.long
def test_local_connect_and_cluster_sessions_give_equal_rows(
    connected: Any, run: OpenRuns, folder: Path, tmp_path: Path
) -> None:
    """The Connect server is once in the JVM of the local session, and once in the driver of the cluster."""
    path = folder / "runs" / "quickstart" / QUICKSTART
    local = digest_rows(run)
    assert all(local[name][1] for name in COMPARED)
    assert digest_rows(open_run(connected, path)) == local
    said = run_on_cluster(tmp_path, [sys.executable, "-c", OPEN_ON_CLUSTER, MASTER, str(path)]).splitlines()
    assert [json.loads(line) for line in said[-2:]] == [local, local]


@pytest.mark.long
def test_connect_has_the_rows_of_the_classic_session(
    connected: Any, run: OpenRuns, runs: OpenRuns, folder: Path
) -> None:
    there = open_run(connected, folder / "runs" / "quickstart" / QUICKSTART)
    assert list(there) == list(run)
    for name in COMPARED:
        assert there[name].schema == run[name].schema, name
    assert sorted_rows(there.events) == sorted_rows(run.events)
    assert there.events.where("node = 3").count() == run.events.where("node = 3").count() > 0
    assert there.hops.schema["d_wire_ns"].metadata == {"unit": "ns", "comment": "ns"}
    with pytest.warns(UserWarning, match="left out"):
        several = open_runs(connected, f"{folder}/runs/*/*")
    assert sorted_rows(several.deliveries) == sorted_rows(runs.deliveries)
    several.create_views("deliveries")
    assert connected.sql("SELECT DISTINCT run_id FROM deliveries ORDER BY run_id").collect() == [
        (QUICKSTART,),
        ("it's",),
    ]


def test_every_name_is_a_view(spark: SparkSession, run: OpenRuns) -> None:
    assert run.create_views() == list(run)
    assert {view.viewName for view in spark.sql("SHOW VIEWS").collect() if view.isTemporary} >= {
        *TABLES,
        "runs",
        "events",
        "streams",
    }
    assert spark.sql("SELECT count(*) FROM nodes").collect() == [(6,)]


def test_a_run_is_opened_once(spark: SparkSession, folder: Path) -> None:
    path = folder / "runs" / "quickstart" / QUICKSTART
    with pytest.raises(RunDirError, match="has the run_id of"):
        open_runs(spark, [path, path])
    with pytest.raises(FileNotFoundError, match="expected finished runs, found none among 1 matches"):
        open_runs(spark, f"{folder}/runs/*")


@pytest.mark.filterwarnings("ignore:.*left out")
def test_the_examples_of_the_page_run(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"spark": spark}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        exec(block, names)
    shown = capsys.readouterr().out
    assert len(blocks) == 5
    assert "receive_ms_p99" in shown and "latency_ms_p50" in shown and "PushedFilters: [EqualTo(node,3)" in shown


# ------------------------------------------------------------------------------------ an analysis through Connect


@pytest.mark.long
def test_an_analysis_through_connect_has_the_rows_of_one_process(server: str, tmp_path: Path) -> None:
    here, there = (Fabrication(seed=1).write(tmp_path / name, run_id="run") for name in ("here", "there"))
    tables.build(here, "here")
    assert tables.build(there, server).startswith(f"by Spark at {server}, 2 cores")
    names = sorted(path.name for path in (here / "tables").glob("*.parquet"))
    assert names == sorted(path.name for path in (there / "tables").glob("*.parquet"))
    for name in names:
        ours, theirs = (pq.read_table(run / "tables" / name) for run in (here, there))
        assert ours.schema == theirs.schema
        assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist())), name
    found = [read_totals(RunDir(run)).messages.standouts for run in (here, there)]
    assert found[0] == found[1] is not None


def test_results_are_in_the_order_of_the_items_and_an_error_of_a_task_is_told(server: str) -> None:
    with on_spark(server) as executor:
        assert executor.map(lambda number: number * number, range(7, 0, -1)) == [49, 36, 25, 16, 9, 4, 1]
        assert executor.map(len, []) == []
        with pytest.raises(Exception, match="ZeroDivisionError"):
            executor.map(lambda number: 1 // number, [1, 0])


def test_an_address_without_server_is_one_line() -> None:
    with pytest.raises(MasterError, match=r"^sc://127\.0\.0\.1:1: Spark cannot begin"), on_spark("sc://127.0.0.1:1"):
        pass


# --------------------------------------------------------------------------------------------- the ten questions

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two analysed runs in ``runs``, with relays."""
    folder = tmp_path_factory.mktemp("questions")
    for name, seed in (("one", 1), ("two", 2)):
        run_dir = Fabrication(seed=seed, relays=True).write(folder / "runs" / "fabricated" / name, run_id=name)
        tables.build(run_dir)
        summary.write(run_dir)
    return folder


@pytest.fixture(scope="module")
def viewed(spark: SparkSession, asked: Path) -> SparkSession:
    """The session, with the views of these runs."""
    open_runs(spark, f"{asked}/runs/*/*").create_views()
    return spark


@pytest.fixture(scope="module")
def of_duckdb(asked: Path) -> dict[str, Rows]:
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(asked)
        exec(IN_DUCKDB, names)
        database: duckdb.DuckDBPyConnection = names["database"]
        return {query: database.sql(query).fetchall() for query in QUERIES}


def test_there_are_ten_questions() -> None:
    assert len(QUERIES) == len(re.findall(r"^## \d+\. ", QUESTIONS, re.MULTILINE)) == 10


@pytest.mark.parametrize("number", long_unless({2, 5, 8}, range(1, 11)))
def test_answers_are_the_same(number: int, viewed: SparkSession, of_duckdb: dict[str, Rows]) -> None:
    query = QUERIES[number - 1]
    of_spark = [tuple(row) for row in viewed.sql(query).collect()]
    answers = sorted(map(rounded, of_spark)), sorted(map(rounded, of_duckdb[query]))
    assert answers[0] == answers[1] != []
    assert {row[0] for row in of_spark} <= {"one", "two"}


def rounded(row: tuple[Any, ...]) -> str:
    """A row with numbers as both engines give them: their sums differ in the last digits."""
    values = [float(f"{float(value):.9g}") + 0.0 if is_number(value) else value for value in row]
    return repr([None if isinstance(value, float) and math.isnan(value) else value for value in values])


def is_number(value: object) -> bool:
    return value is not None and not isinstance(value, str | bool)
