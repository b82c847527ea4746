"""A run whose messages have expressions: its tables, its report, and a study of the same experiment."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from harness.experiment.form import Experiment
from harness.experiment.loader import decode_experiment
from harness.planning import make_plan, write_plan
from harness.stages.simulation import simulate_planned
from harness.studies.form import RunSpec
from harness.studies.measures import MEASURES
from harness.studies.point_run import simulate_point
from metrics import summary, tables
from metrics.adversaries import read_adversaries
from metrics.measures.deliveries import DELIVERIES
from metrics.measures.groups import GROUPS
from metrics.measures.registry import MEASURES as REPORTED
from metrics.report import report
from metrics.report.groups import ALL, MOST_EXPRESSIONS, expressions_by_use, sharing_of_links
from metrics.rundir import RunDir, Summary
from peer.core.addressing.expression import parse
from peer.core.addressing.keywords import keywords
from peer.core.schedule import Population, Publish, decode_schedule
from peer.protocols.registry import PROTOCOLS

pytestmark = pytest.mark.spark

TEXTS = ("a&b", "c|d&(a|e)", "b&f")
PREDICTED = 0.25


def describe(protocol: str, **more: Any) -> Experiment:
    return decode_experiment(
        {
            "name": "groups",
            "testbed": "simulated",
            "protocol": protocol,
            "seed": 3,
            "underlay": {"kind": "unit-square", "hosts": 30},
            "workload": {"topics": 12, "warmup_s": 15, "duration_s": 20, "publish_rate_per_s": 10, "settle_s": 1},
            "interests": {
                "kind": "popularity",
                "zipf_exponent": 1.0,
                "subscriptions_min": 3,
                "subscriptions_max": 6,
            },
            "expressions": {"kind": "list", "texts": list(TEXTS)},
            **more,
        }
    )


class Analysed:
    """A simulated run with its tables, and the same experiment as a study measures it."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        source = folder / "experiment.toml"
        source.write_text('name = "groups"\n')
        self.run_dir = folder / "run"
        write_plan(make_plan(experiment, source), self.run_dir)
        simulate_planned(self.run_dir)
        with pytest.MonkeyPatch.context() as patch:
            protocol = PROTOCOLS[experiment.protocol]
            predicting = replace(protocol, false_positive_rate=lambda section, attributes, lacking: PREDICTED)
            patch.setitem(PROTOCOLS, experiment.protocol, predicting)
            tables.build(self.run_dir)
            rows = simulate_point(experiment, RunSpec(), set(MEASURES), folder)
        self.summary: Summary = summary.write(self.run_dir)
        report.write(self.run_dir)
        self.page = (self.run_dir / "report" / "index.html").read_text()
        self.study = {row.measure: row.value for row in rows if row.by is None and row.moment is None}

    def table(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pq.read_table(self.run_dir / "tables" / f"{name}.parquet").to_pylist()
        return rows


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(describe("random", flood={"ttl": 255}), tmp_path_factory.mktemp("calm"))


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    churn = {"kind": "exponential", "on_s": 15, "crash_ratio": 0.5}
    experiment = describe("scribe", churn=churn, adversary={"kind": "dropper", "ratio": 0.2})
    return Analysed(experiment, tmp_path_factory.mktemp("disturbed"))


def test_a_calm_run_is_valid_and_reaches_exactly_the_members_and_others(calm: Analysed) -> None:
    assert (calm.summary.verdict, calm.summary.reasons) == ("valid", ())
    overlay = json.loads((calm.run_dir / "overlay.json").read_bytes())
    attributes = {node["node"]: keywords(node["topics"]) for node in overlay["nodes"]}
    published = [
        action
        for action in decode_schedule((calm.run_dir / "schedule.jsonl").read_bytes())
        if isinstance(action, Publish)
    ]
    groups = {row["message_id"]: row for row in calm.table("groups")}
    rows = calm.table("deliveries")
    assert len(groups) == len(published) > 150
    for action in published:
        expression = parse(action.expression)
        group = {node for node, own in attributes.items() if expression.matches(own)} - {action.node}
        assert {row["node"] for row in rows if row["message_id"] == action.message_id} == group
        subscribed = {node for node, own in attributes.items() if own & keywords(action.topics)} - {action.node}
        row = groups[action.message_id]
        assert row["expression"] == action.expression
        assert (row["members"], row["reached"], row["latecomers"]) == (len(group), len(group), 0)
        assert row["false_positives"] == len(subscribed - group)
        assert row["relays"] == 29 - len(subscribed)
        assert row["others"] == 29 - len(group)
        assert row["false_positives_predicted"] == PREDICTED * row["others"]
        assert row["delay_ms"] > row["bound_ms"] > 0
    assert calm.summary.headline["delivery_ratio"] == 1
    assert calm.summary.headline["false_positive_ratio"] > 0.1


@pytest.mark.parametrize("which", ["calm", "disturbed"])
def test_the_headline_is_the_studys(which: str, request: pytest.FixtureRequest) -> None:
    run: Analysed = request.getfixturevalue(which)
    names = [name for name in DELIVERIES.names if name in run.summary.headline]
    if which == "disturbed":  # scribe's nodes may relay a copy on one topic and then deliver one on another
        names = [name for name in names if "overhead" not in name and name != "duplicates_per_delivery"]
    assert len(names) > 10
    names += GROUPS.names
    for name in names:
        assert run.summary.headline[name] == pytest.approx(run.study[name]), name
    assert set(GROUPS.names) <= run.summary.headline.keys()
    assert run.study["delay_cost_over_bound"] > 1


def test_under_churn_groups_are_those_of_the_instant(disturbed: Analysed) -> None:
    """By the schedule: simulated instants are exact."""
    bad = read_adversaries(RunDir(disturbed.run_dir))
    assert len(bad) == 6
    overlay = json.loads((disturbed.run_dir / "overlay.json").read_bytes())
    population = Population({node["node"]: node["topics"] for node in overlay["nodes"] if node["up"]})
    groups = {row["message_id"]: row for row in disturbed.table("groups")}
    reached = 0
    for action in decode_schedule((disturbed.run_dir / "schedule.jsonl").read_bytes()):
        if not isinstance(action, Publish):
            population.apply(action)
            continue
        expression, row = parse(action.expression), groups[action.message_id]
        honest = population.interests.keys() - bad - {action.node}
        group = {node for node in honest if expression.matches(keywords(population.interests[node]))}
        assert (row["members"], row["others"]) == (len(group), len(honest) - len(group))
        reached += row["reached"]
    assert reached > 100
    assert disturbed.summary.headline["members_reached_ratio"] < 1
    assert [check.name for check in disturbed.summary.checks if check.failed] == []


def test_the_report_shows_the_expressions(calm: Analysed) -> None:
    assert "satisfied the message&#39;s expression at the publication" in calm.page
    [total, *rows] = expressions_by_use(report.Run(calm.run_dir))
    assert total["expression"] == ALL
    assert sorted(row["expression"] for row in rows) == sorted(TEXTS)
    assert [row["messages"] for row in rows] == sorted((row["messages"] for row in rows), reverse=True)
    assert total["messages"] == sum(row["messages"] for row in rows) == len(calm.table("groups"))
    assert (total["reached"], total["predicted"]) == (1, pytest.approx(PREDICTED))
    assert total["measured"] == calm.summary.headline["false_positive_ratio"]
    assert total["relays"] == calm.summary.headline["relays_per_message"]
    assert total["false_positives"] == calm.summary.headline["false_positives_per_message"]
    assert '<a href="#expressions">' in calm.page and '<h2 id="expressions">' in calm.page
    table = calm.page.split('<table id="expression-groups">')[1].split("</table>")[0]
    assert all(f"<code>{text.replace('&', '&amp;')}</code>" in table for text in TEXTS)
    assert table.count("<tr>") == 1 + 1 + len(TEXTS) <= MOST_EXPRESSIONS


def test_the_report_shows_how_many_expressions_share_a_link(calm: Analysed) -> None:
    rows = calm.table("group_links")
    sharing = sharing_of_links(report.Run(calm.run_dir))
    assert sharing == {
        "links": len(rows),
        "mean": pytest.approx(calm.summary.headline["expressions_per_link_mean"]),
        "most": len(TEXTS),
        "wire": None,
    }
    assert sum(row["copies"] for row in rows) == sum(row["copies"] for row in calm.table("groups"))
    assert f"Copies crossed {len(rows)} links" in calm.page
    tiles = calm.page.split('<h2 id="results"')[0]
    for name in ("members_reached_ratio", "false_positive_ratio", "expressions_per_link_mean"):
        assert REPORTED[name].text in tiles
    assert "captures have seen on the wire" not in calm.page
