"""A run with attackers and a study of the same experiment: both measure the honest nodes, and find the same."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.experiment.form import Experiment
from harness.experiment.loader import decode
from harness.planning import make_plan, write_plan
from harness.stages.simulation import simulate_planned
from harness.studies.form import RunSpec
from harness.studies.measures import MEASURES
from harness.studies.point_run import Row, simulate_point
from metrics import summary, tables
from metrics.adversaries import read_adversaries
from metrics.comparison.resampling import RESAMPLED
from metrics.comparison.rows import read_delivery_rows
from metrics.measures.deliveries import DELIVERIES
from metrics.report import report
from metrics.rundir import RunDir, Summary

ATTACKED = {
    "name": "attacked",
    "testbed": "simulated",
    "protocol": "topiary",
    "underlay": {"kind": "unit-square", "hosts": 30},
    "topiary": {"degree": 3, "epoch_s": 5},
    "workload": {"topics": 6, "warmup_s": 10, "duration_s": 10, "publish_rate_per_s": 10},
    "interests": {"ratio": 0.3},
    "churn": {"kind": "exponential", "on_s": 20, "crash_ratio": 0.5},
    "adversary": {"kind": "eclipse", "ratio": 0.3, "victim_topics": [0]},
}
SECOND_NS = 1_000_000_000
MIDDLE_S, END_S = 15, 20  # of the workload, after the nodes' start


class Attacked:
    """The run, analysed, and the study's rows."""

    def __init__(self, folder: Path) -> None:
        experiment = decode(ATTACKED, Experiment)
        source = folder / "experiment.toml"
        source.write_text('name = "attacked"\n')
        self.run_dir = folder / "run"
        write_plan(make_plan(experiment, source), self.run_dir)
        simulate_planned(self.run_dir)
        tables.build(self.run_dir)
        self.summary: Summary = summary.write(self.run_dir)
        report.write(self.run_dir)
        self.run = RunDir(self.run_dir)
        self.adversaries = read_adversaries(self.run)
        self.end_ns = self.run.manifest.zero_ns + 10 * SECOND_NS
        studied = RunSpec(snapshots_s=(MIDDLE_S, END_S), newcomers_s=0)
        self.rows: list[Row] = simulate_point(experiment, studied, set(MEASURES), folder)

    def table(self, name: str) -> list[dict[str, Any]]:
        return pq.read_table(self.run_dir / "tables" / f"{name}.parquet").to_pylist()

    def study(self, *moments: float | None) -> dict[str, float]:
        return {row.measure: row.value for row in self.rows if row.by is None and row.moment in moments}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    return Attacked(tmp_path_factory.mktemp("attacked"))


def test_the_overlays_measures_are_the_studys(attacked: Attacked) -> None:
    at_end = attacked.study(END_S)
    [row] = [row for row in attacked.table("overlay") if row["at_ns"] == attacked.end_ns]
    common = at_end.keys() & row.keys()
    assert common > {"nodes", "degree_mean", "clustering", "path_length_mean", "topic_components"}
    assert common > {"degree_p99", "opened_links_max", "opened_links_mean", "accepted_links_p99"}
    assert {name: row[name] for name in common} == {name: at_end[name] for name in common}


def test_what_a_comparison_draws_from_are_the_rows_of_the_headline(attacked: Attacked) -> None:
    """The bootstrap over messages measures the run's rows, the summary what tasks counted of them."""
    rows = read_delivery_rows(attacked.run, attacked.adversaries)
    numbers, headline = DELIVERIES.numbers(rows.facts), attacked.summary.headline
    common = [name for name in headline if name in numbers]
    assert set(common) >= set(RESAMPLED) & set(headline) and len(common) > 15
    assert {name: numbers[name] for name in common} == {name: pytest.approx(headline[name]) for name in common}
    assert headline["duplicates_per_delivery"] > 0 and headline["relay_ratio"] > 0, "so that each is tested"


def test_the_headline_is_the_studys(attacked: Attacked) -> None:
    headline, middle = attacked.summary.headline, attacked.study(MIDDLE_S)
    assert headline["adversaries"] == 9
    assert (headline["degree_mean"], headline["degree_max"]) == (middle["degree_mean"], middle["degree_max"])
    rest = attacked.study(None, END_S)
    names = ["control_bytes_per_peer_per_s", "delivery_ratio", "clustering", "diameter", "topic_components"]
    names += [name for name in headline if name.startswith(("hops_", "propagation_", "traffic_", "node_traffic_"))]
    names += ["relay_ratio", "duplicates_per_delivery"]
    assert {name: headline[name] for name in names} == pytest.approx({name: rest[name] for name in names})


def test_degrees_are_those_of_honest_nodes_with_their_links_to_adversaries(attacked: Attacked) -> None:
    nodes = [row for row in attacked.table("overlay_degrees") if row["at_ns"] == attacked.end_ns]
    assert attacked.adversaries.isdisjoint(row["node"] for row in nodes)
    honest = [row["degree"] for row in nodes]
    found = attacked.study(END_S)
    assert (found["nodes"], found["degree_mean"]) == (len(honest), sum(honest) / len(honest))
    assert found["degree_max"] == max(honest)


def test_frames_for_each_change_are_the_studys(attacked: Attacked) -> None:
    run = {row["kind"]: row["frames_per_change"] for row in attacked.table("churn_control")}
    study = {row.by: row.value for row in attacked.rows if row.measure == "frames_per_change"}
    assert run
    assert run == {kind: study[kind] for kind in run}


def test_epochs_scores_are_those_of_honest_nodes(attacked: Attacked) -> None:
    epochs = {row["epoch"]: row for row in attacked.table("epochs") if row["nodes"]}
    study = [row.value for row in attacked.rows if row.measure == "score_mean" and row.moment is not None]
    assert [row["score_mean"] for row in epochs.values()] == pytest.approx(study[: len(epochs)])
    assert max(row["nodes"] for row in epochs.values()) <= 30 - len(attacked.adversaries)


ASKED = {
    "name": "asked",
    "testbed": "simulated",
    "protocol": "topiary",
    "underlay": {"kind": "unit-square", "hosts": 12},
    "workload": {"topics": 6, "warmup_s": 1, "duration_s": 5, "publish_rate_per_s": 10},
    "membership": {"refresh_s": 3},
    "interests": {"ratio": 0.3},
    "churn": {"kind": "exponential", "on_s": 3, "off_s": 1},
    "adversary": {"kind": "asker", "nodes": [2, 7]},
}


def test_what_askers_conclude_is_the_studys(tmp_path: Path) -> None:
    experiment = decode(ASKED, Experiment)
    source = tmp_path / "experiment.toml"
    source.write_text('name = "asked"\n')
    run_dir = tmp_path / "run"
    write_plan(make_plan(experiment, source), run_dir)
    simulate_planned(run_dir)
    tables.build(run_dir)
    headline = summary.write(run_dir).headline
    rows = pq.read_table(run_dir / "tables" / "disclosures.parquet").to_pylist()
    assert [row["node"] for row in rows] == [2, 7]
    assert sum(row["disclosed"] for row in rows) < sum(row["subscriptions"] for row in rows), "some come late or never"
    [study] = simulate_point(experiment, RunSpec(), ["disclosure_ratio"], tmp_path)
    assert 0.5 < study.value < 1
    assert headline["disclosure_ratio"] == study.value
