"""The tables for other programs: DuckDB's views, the five questions of docs/questions.ipynb, and CSV."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from harness import cli
from metrics import summary, tables
from metrics.rundir import SCHEMA_VERSION, RunDir
from metrics.rundir.parquet import units_of, version_of
from metrics.tables.exports import write_views
from metrics.tables.schemas import TABLES
from tests.fabricate import Fabrication
from tests.notebook import code_cells, run_cell

QUESTIONS = Path(__file__).parents[2] / "docs" / "questions.ipynb"
ANSWERS = ("slow_cities", "relays", "popularity", "parts", "lengths")


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = Fabrication(seed=2, nodes=6, messages=30).write(tmp_path_factory.mktemp("exports") / "run")
    underlay = json.loads((run_dir / "underlay.json").read_text())
    for number, host in enumerate(underlay["hosts"]):
        host |= {"latitude": 10.0 * number - 20, "longitude": 60.0 * number - 170, "site": f"City '{number % 3}'"}
    (run_dir / "underlay.json").write_text(json.dumps(underlay))
    tables.build(run_dir)
    summary.write(run_dir)
    return run_dir


@pytest.fixture(scope="module")
def database(analysed: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"SET file_search_path = '{analysed / 'tables'}'")
    connection.execute((analysed / "tables" / "trellis.sql").read_text())
    return connection


def table(run_dir: Path, name: str) -> pd.DataFrame:
    return pq.read_table(run_dir / "tables" / f"{name}.parquet").to_pandas()


def test_every_part_says_its_version_and_units(analysed: Path) -> None:
    for name in TABLES:
        parts = list((analysed / "tables" / f"{name}.parquet").glob("*.parquet"))
        assert parts
        for part in parts:
            assert version_of(pq.read_metadata(part)) == SCHEMA_VERSION, name
            assert ("ns" in units_of(pq.read_schema(part)).values()) == any("_ns" in column for column in TABLES[name])


def test_every_table_is_a_view_with_its_rows(database: duckdb.DuckDBPyConnection, analysed: Path) -> None:
    for name, columns in TABLES.items():
        view = database.sql(f"SELECT * FROM {name}")
        assert view.columns == list(columns)
        assert len(view) == len(table(analysed, name))
    assert database.sql("SELECT run_id, seconds(zero_ns) FROM run").fetchall() == [
        (RunDir(analysed).manifest.run_id, 0.0)
    ]
    said = database.sql("SELECT comment FROM duckdb_columns() WHERE table_name = 'hops' AND column_name = 'd_wire_ns'")
    assert said.fetchall() == [("ns",)]


def test_a_table_without_parts_is_an_empty_view(analysed: Path, tmp_path: Path) -> None:
    run = RunDir(analysed, tmp_path)
    (run.tables / "messages.parquet").mkdir(parents=True)
    connection = duckdb.connect()
    connection.execute(write_views(run).read_text())
    view = connection.sql("SELECT * FROM messages")
    assert view.columns == list(TABLES["messages"]) and len(view) == 0


def test_dimensions_fit_the_facts(analysed: Path) -> None:
    deliveries, subscriptions = table(analysed, "deliveries"), table(analysed, "subscriptions")
    joined = deliveries.merge(subscriptions, on=["node", "topic"])
    instant = joined["publish_ns"]
    due = joined[(joined["due_ns"] <= instant) & (instant < joined["to_ns"])]
    assert len(due) == len(deliveries), "each expected delivery has the subscription that it is due to"
    assert table(analysed, "nodes")["node"].tolist() == list(range(6))
    assert set(table(analysed, "instances")["node"]) == set(range(6))


def test_the_five_questions_are_answered(analysed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN", str(analysed))
    names: dict[str, Any] = {}
    shown = [run_cell("".join(cell["source"]), names) for cell in code_cells(json.loads(QUESTIONS.read_text()))]
    assert shown[0]["name"].tolist() == [RunDir(analysed).plan.name]
    assert all(table is names[name] for table, name in zip(shown[1:], ANSWERS, strict=True))
    slow, unwanted, popular, parts, lengths = shown[1:]
    nodes = table(analysed, "nodes")
    zero_ns = RunDir(analysed).manifest.zero_ns

    deliveries = table(analysed, "deliveries").merge(nodes[["node", "city"]], on="node")
    for row in slow.itertuples():
        own = deliveries[deliveries["city"] == row.city]
        assert row.expected == len(own)
        assert row.delivery_ratio == pytest.approx(own["delivered_ns"].notna().mean(), abs=1e-4)
        assert row.p50_ms == pytest.approx(own["latency_ms"].median(), abs=0.051)
        assert row.p99_ms == pytest.approx(own["latency_ms"].quantile(0.99), abs=0.051)
        assert row.stretch == pytest.approx(own["stretch"].median(), abs=0.0051)
    assert set(slow["city"]) == set(nodes["city"]) and slow["p50_ms"].is_monotonic_decreasing

    copies = table(analysed, "hops").dropna(subset=["at_relay"])
    share = copies["at_relay"].astype(bool).groupby(copies["dst_node"]).agg(["size", "mean"])
    for row in unwanted.itertuples():
        assert (row.copies, row.unwanted) == (share["size"][row.node], pytest.approx(share["mean"][row.node], abs=6e-4))
    assert len(unwanted) == 5 and unwanted["unwanted"].iloc[0] == pytest.approx(share["mean"].max(), abs=6e-4)

    subscriptions = table(analysed, "subscriptions")
    now = subscriptions[(subscriptions["from_ns"] <= zero_ns) & (zero_ns < subscriptions["to_ns"])]
    made = deliveries.dropna(subset=["delivered_ns"])
    made = made.assign(subscribers=made["topic"].map(now.groupby("topic").size()))
    expected = made.groupby("subscribers")
    assert popular["subscribers"].tolist() == sorted(expected.groups)
    assert popular["topics"].tolist() == expected["topic"].nunique().tolist()
    assert popular["p50_ms"].to_numpy() == pytest.approx(expected["latency_ms"].median().to_numpy(), abs=0.051)
    assert popular["duplicates"].to_numpy() == pytest.approx(expected["copies"].mean().to_numpy() - 1, abs=0.0051)

    hops = table(analysed, "hops").dropna(subset=["log_recv_ns", "log_send_ns"])
    once = hops[~(hops["n_retx"] > 0)]
    row = parts[parts["frames"] == "sent once"].iloc[0]
    excess = (once["d_wire_ns"] / 1e6 - once["asked_delay_ms"]).quantile(0.99)
    assert row["hops"] == len(once) and row["wire_excess_p99_ms"] == pytest.approx(excess, abs=0.0051)
    assert parts["hops"].sum() == len(hops)

    links = table(analysed, "physical_links")
    links = links[(links["from_ns"] <= zero_ns) & (zero_ns < links["to_ns"])]
    pairs = {tuple(sorted(pair)) for pair in zip(links["node"], links["peer"], strict=True)}
    assert lengths["linked"].sum() == len(pairs) and lengths["pairs"].sum() == 15
    latitude, longitude = np.radians(nodes["latitude"]), np.radians(nodes["longitude"])
    near = 0
    for a in range(6):
        for b in range(a):
            angle = np.arccos(
                np.sin(latitude[a]) * np.sin(latitude[b])
                + np.cos(latitude[a]) * np.cos(latitude[b]) * np.cos(longitude[a] - longitude[b])
            )
            near += 5000 <= 6371 * angle < 10000
    assert lengths.set_index("from_km")["pairs"][5000] == near


def test_tables_are_written_as_csv(analysed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (analysed / "tables").stat().st_ino
    assert cli.main(["tables", str(analysed), "--csv", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: {len(TABLES)} CSV files\n"
    assert (analysed / "tables").stat().st_ino == before, "tables that are there are not computed again"
    for name, columns in TABLES.items():
        with (tmp_path / "out" / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
            assert len(rows) == len(table(analysed, name))
            assert not rows or list(rows[0]) == list(columns)
    with (tmp_path / "out" / "messages.csv").open(newline="") as file:
        written = {
            int(row["message_id"]): [int(topic) for topic in row["topics"].split()] for row in csv.DictReader(file)
        }
    messages = table(analysed, "messages")
    assert written == {row.message_id: list(row.topics) for row in messages.itertuples()}
    (tmp_path / "file").write_text("")
    assert cli.main(["tables", str(analysed), "--csv", str(tmp_path / "file")]) == 2


def test_the_notebook_shows_the_outputs_of_its_queries(analysed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another run, but with the columns of these queries."""
    monkeypatch.setenv("RUN", str(analysed))
    notebook = json.loads(QUESTIONS.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    names: dict[str, Any] = {}
    for number, cell in enumerate(code_cells(notebook), 1):
        [output] = cell["outputs"]
        assert cell["execution_count"] == output["execution_count"] == number
        html = "".join(output["data"]["text/html"])
        assert re.findall(r"<th>(.*?)</th>", html) == list(run_cell("".join(cell["source"]), names))
        rows = "".join(output["data"]["text/plain"]).splitlines()[1:]
        assert len(rows) == html.count("<tr>") > 0
