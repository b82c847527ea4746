"""The analysis of a run in which nodes come and go: a simulated one, whose traces a slow reader reads too."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from harness.experiment.loader import load_experiment
from harness.planning import make_plan, write_plan
from harness.stages.simulation import simulate_planned
from metrics import summary, tables
from metrics.rundir import Summary

EXPERIMENT = """
name = "churn"
testbed = "simulated"
[underlay]
kind = "world-cities"
hosts = 14
[random]
degree = 3
[workload]
topics = 4
publish_rate_per_s = 8
warmup_s = 3
duration_s = 25
settle_s = 2
[interests]
ratio = 0.5
[churn]
kind = "exponential"
on_s = 8
crash_ratio = 0.5
silent_ratio = 0.5
"""


class Analysed:
    """The run, its tables and what its traces say."""

    def __init__(self, folder: Path) -> None:
        file = folder / "x.toml"
        file.write_text(EXPERIMENT)
        self.run_dir = folder / "run"
        write_plan(make_plan(load_experiment(file), file), self.run_dir)
        simulate_planned(self.run_dir)
        tables.build(self.run_dir)
        self.summary: Summary = summary.write(self.run_dir)
        overlay = json.loads((self.run_dir / "overlay.json").read_bytes())
        self.manifest = json.loads((self.run_dir / "manifest.json").read_bytes())
        self.specs = {spec["node"]: spec for spec in overlay["nodes"]}
        self.events = {node: self._read(node) for node in self.specs}

    def _read(self, node: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run_dir / "trace" / f"{node}.jsonl").read_bytes().splitlines()]

    def table(self, name: str) -> pd.DataFrame:
        return pq.read_table(self.run_dir / "tables" / f"{name}.parquet").to_pandas()

    def is_settled(self, node: int, at_ns: int) -> bool:
        """Whether the node's last join is at least two seconds ago."""
        joins = [e["ts_ns"] for e in self.events[node] if e["event"] == "join" and e["ts_ns"] <= at_ns]
        return not joins or at_ns - joins[-1] >= 2_000_000_000

    def state_at(self, node: int, at_ns: int) -> tuple[bool, set[int]]:
        """Whether the node is up, and its topics."""
        up, topics = self.specs[node]["up"], set(self.specs[node]["topics"])
        for event in self.events[node]:
            if event["event"] in ("join", "leave") and event["ts_ns"] <= at_ns:
                up = event["event"] == "join"
                topics = set(event["topics"]) if up else set()
        return up, topics


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(tmp_path_factory.mktemp("churn"))


def test_deliveries_are_expected_of_nodes_that_are_up_settled_and_subscribed_at_the_publication(run: Analysed) -> None:
    expected = {
        (event["message_id"], node)
        for publisher, events in run.events.items()
        for event in events
        if event["event"] == "publish"
        for node in run.specs
        if node != publisher and run.state_at(node, event["ts_ns"])[1] & set(event["topics"])
        if run.is_settled(node, event["ts_ns"])
    }
    deliveries = run.table("deliveries")
    assert set(zip(deliveries["message_id"], deliveries["node"], strict=True)) == expected
    assert 0 < deliveries["delivered_ns"].notna().sum() < len(deliveries), "churn costs some deliveries"


def test_sharing_has_rows_only_for_nodes_that_are_up(run: Analysed) -> None:
    sharing = run.table("sharing")
    instants = sorted(set(sharing["at_ns"]))
    assert len(instants) > 25
    found = set(zip(sharing["node"], sharing["at_ns"], strict=True))
    assert found == {(node, at_ns) for node in run.specs for at_ns in instants if run.state_at(node, at_ns)[0]}
    assert len(found) < len(run.specs) * len(instants)


def test_links_end_with_the_lives_of_both_ends(run: Analysed) -> None:
    for name in ("links", "physical_links"):
        table = run.table(name)
        assert len(table)
        for row in table.itertuples():
            assert run.state_at(row.node, row.from_ns)[0]
            assert run.state_at(row.node, max(row.from_ns, row.to_ns - 1))[0]


def test_a_run_with_scheduled_crashes_is_sound(run: Analysed) -> None:
    crashes = [
        e for events in run.events.values() for e in events if e["event"] == "leave" and e["reason"] == "crashed"
    ]
    assert crashes, "the experiment is to have some"
    checks = {check.name: check for check in run.summary.checks}
    assert checks["churn_executed"].tested > 10
    assert checks["delivery_rows"].tested > 100
    assert [check.name for check in run.summary.checks if check.failed] == []
    sent, received = (
        {(e["conn"], e["direction"], e["off"]) for events in run.events.values() for e in events if e["event"] == name}
        for name in ("send", "receive")
    )
    assert sent - received, "crashes lost frames, and the check knew why"


def test_overlay_has_only_nodes_that_are_up(run: Analysed) -> None:
    overlay = run.table("overlay")
    assert overlay["nodes"].nunique() > 1
    for row in overlay.itertuples():
        states = {node: run.state_at(node, row.at_ns) for node in run.specs}
        assert row.nodes == sum(up for up, _ in states.values())
        assert row.subscriptions == sum(len(topics) for up, topics in states.values() if up)
        assert row.topics == len(set().union(*(topics for up, topics in states.values() if up)))


def test_control_frames_are_set_against_joins_and_leaves(run: Analysed) -> None:
    control = run.table("churn_control").set_index("kind")
    workload = next(phase for phase in run.manifest["phases"] if phase["name"] == "workload")
    inside = [
        event
        for events in run.events.values()
        for event in events
        if workload["start_ns"] <= event["ts_ns"] < workload["end_ns"]
    ]
    changes = {
        name: sum(event["event"] == name and event.get("reason") in ("joined", "left", "crashed") for event in inside)
        for name in ("join", "leave")
    }
    assert (set(control["joins"]), set(control["leaves"])) == ({changes["join"]}, {changes["leave"]})
    for kind, row in control.iterrows():
        frames = sum(event["event"] == "send" and event["kind"] == kind for event in inside)
        assert row["frames"] == frames > 0
        assert row["frames_per_change"] == frames / (changes["join"] + changes["leave"])
    assert {1, 2, 3} <= set(control.index) and 16 not in control.index
