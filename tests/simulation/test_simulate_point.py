"""A study's run in memory: the same under any PYTHONHASHSEED, and in agreement with a run directory's traces."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from harness.experiment.form import Experiment
from harness.experiment.loader import decode, decode_experiment
from harness.planning import make_plan, write_plan
from harness.planning.underlays import make_network
from harness.simulator.network import SimulatedNetwork
from harness.stages.simulation import simulate_planned
from harness.studies.form import RunSpec
from harness.studies.measures import MEASURES
from harness.studies.point_run import Row, simulate_point
from metrics.measures.attacks import DISCLOSURE
from metrics.measures.groups import GROUPS, NEWCOMERS
from metrics.measures.learning import SCORES
from metrics.measures.underlay import UNDERLAY
from peer.core.frames import Data, kind_names
from peer.testing import outputs_under_hash_seeds
from topologies.model import Underlay

ROOT = Path(__file__).parents[2]
HERE = Path()

CHURN = {
    "name": "x",
    "protocol": "spidercast",
    "underlay": {"kind": "unit-square", "hosts": 40, "loss_ratio": 0.01, "jitter": 3.0},
    "workload": {"topics": 12, "warmup_s": 10, "duration_s": 20, "publish_rate_per_s": 10},
    "interests": {"kind": "popularity", "subscriptions_min": 2, "subscriptions_max": 5},
    "churn": {"kind": "exponential", "on_s": 20, "crash_ratio": 0.5},
}

SCRIPT = f"""
import json, msgspec
from pathlib import Path
from random import Random
from harness.experiment.form import Experiment
from harness.experiment.loader import decode, decode_experiment
from harness.studies.form import RunSpec
from harness.studies.measures import MEASURES
from harness.studies.point_run import simulate_point
experiment = decode({CHURN!r}, Experiment)
rows = simulate_point(experiment, RunSpec(snapshot_every_s=10, epoch_messages=50), sorted(MEASURES), Path())
print(msgspec.json.encode(rows).decode())
"""


def experiment(**sections) -> Experiment:
    return decode({"name": "x", "testbed": "simulated", **sections}, Experiment)


def plain(rows: list[Row]) -> dict[str, float]:
    return {row.measure: row.value for row in rows if row.moment is None and row.by is None}


def test_the_hash_seed_changes_nothing():
    [output] = outputs_under_hash_seeds(SCRIPT)
    rows = [Row(*row) for row in json.loads(output)]
    # There are neither scores nor askers nor expressions here, nor a graph of routers.
    assert {row.measure for row in rows} == MEASURES.keys() - {
        *SCORES.names,
        *DISCLOSURE.names,
        *GROUPS.names,
        *NEWCOMERS.names,
        *UNDERLAY.names,
    }
    assert {row.moment for row in rows if row.measure == "degree_mean"} == {10, 20, 30, 33}
    assert 0.5 < plain(rows)["delivery_ratio"] < 1


def test_the_numbers_are_those_of_the_simulated_testbeds_traces(tmp_path):
    """The run directory's traces, counted here in the plainest way, give what the run in memory measured."""
    asked = experiment(
        underlay={"kind": "unit-square", "hosts": 30},
        random={"degree": 3},
        workload={"topics": 6, "warmup_s": 3, "duration_s": 10, "publish_rate_per_s": 20},
    )
    source = tmp_path / "experiment.toml"
    source.write_text('name = "x"\n')
    planned = make_plan(asked, source)
    write_plan(planned, tmp_path / "run")
    simulate_planned(tmp_path / "run")
    counted = _count(tmp_path / "run", planned.overlay.nodes)
    rows = simulate_point(asked, RunSpec(), set(MEASURES), HERE)
    found = {row.measure: row.value for row in rows if row.by is None}
    assert counted["messages"] > 100
    assert 0.05 < counted["traffic_overhead_ratio"] < 0.95
    assert {name: found[name] for name in counted} == pytest.approx(counted, rel=1e-12)


def test_the_windows_of_publication_time_add_up_to_the_run():
    asked = decode({**CHURN, "testbed": "simulated"}, Experiment)
    wanted = {"messages", "deliveries_expected", "delivery_ratio", "traffic_overhead_ratio", "delivery_hops"}
    rows = simulate_point(asked, RunSpec(window_s=8), wanted, HERE)
    numbers = {(row.measure, row.moment): row.value for row in rows if row.by is None}
    windows = (10, 18, 26)  # of 20 s from the workload's zero, which is 10 s after the nodes' start
    assert {moment for measure, moment in numbers if measure == "messages"} == {None, *windows}
    for measure in ("messages", "deliveries_expected"):
        assert sum(numbers[measure, at_s] for at_s in windows) == numbers[measure, None]
    delivered = {
        at_s: numbers["delivery_ratio", at_s] * numbers["deliveries_expected", at_s] for at_s in (None, *windows)
    }
    assert sum(delivered[at_s] for at_s in windows) == pytest.approx(delivered[None])
    assert numbers["messages", 26] < numbers["messages", 10], "the last window is 4 s long"
    counted = {at_s: sum(row.value for row in rows if row.by is not None and row.moment == at_s) for at_s in delivered}
    assert counted == pytest.approx(delivered), "each delivery has a number of links"


def test_the_first_messages_of_every_epoch_may_be_left_out():
    """50 messages in epochs of 20: with 5 skipped each, those of the last ten in the third epoch are 5."""
    asked = experiment(
        underlay={"kind": "uniform", "hosts": 20, "delay_ms": 10},
        random={"degree": 3},
        workload={"topics": 3, "publish_interval": "fixed", "publish_rate_per_s": 10, "duration_s": 5},
    )
    found = {}
    for skipped in (0, 5):
        run = RunSpec(epoch_messages=20, skip_messages=skipped)
        rows = simulate_point(asked, run, {"messages", "hops_mean", "topic_delivery_ratio"}, HERE)
        found[skipped] = [row.value for row in rows if row.measure == "messages"]
        assert len([row for row in rows if row.measure == "hops_mean"]) == 4
    assert found == {0: [50, 20, 20, 10], 5: [35, 15, 15, 5]}


def test_scores_are_those_that_honest_nodes_trace_epoch_by_epoch(tmp_path):
    asked = experiment(
        protocol="topiary",
        underlay={"kind": "unit-square", "hosts": 30},
        topiary={"degree": 4, "epoch_s": 5},
        workload={"topics": 6, "warmup_s": 10, "duration_s": 20, "publish_rate_per_s": 20},
        interests={"ratio": 0.5},
        adversary={"kind": "eclipse", "ratio": 0.2},
    )
    source = tmp_path / "experiment.toml"
    source.write_text('name = "x"\n')
    planned = make_plan(asked, source)
    write_plan(planned, tmp_path / "run")
    simulate_planned(tmp_path / "run")
    honest = {spec.node for spec in planned.overlay.nodes if spec.behaviour is None}
    assert len(honest) == 24
    scores: dict[int, list[float]] = {}
    for event in _events(tmp_path / "run"):
        if event["event"] == "epoch" and event["node"] in honest:
            scores.setdefault(event["epoch"] - 2, []).append(event["score"])  # two epochs of warm-up
    wanted = {"score_mean", "score_quantiles", "adversary_slots_ratio"}
    rows = simulate_point(asked, RunSpec(snapshot_every_s=5), wanted, HERE)
    found = {row.moment: row.value for row in rows if row.measure == "score_mean"}
    everything = [score for of_epoch in scores.values() for score in of_epoch]
    assert set(range(4)) <= scores.keys()
    assert found.pop(None) == pytest.approx(sum(everything) / len(everything))
    assert found == pytest.approx({epoch: sum(each) / len(each) for epoch, each in scores.items()})
    quantiles = [(row.by, row.value) for row in rows if row.measure == "score_quantiles" and row.moment == 1]
    assert (quantiles[0][1], quantiles[-1][1]) == (min(scores[1]), max(scores[1]))
    assert quantiles == sorted(quantiles)
    shares = [
        row.value * 24 * 4 for row in rows if row.measure == "adversary_slots_ratio" and row.moment in (5, 10, 15)
    ]
    assert shares == pytest.approx([round(share) for share in shares]), "each honest node has four slots"
    assert 0 < min(shares) <= max(shares) < 24 * 4


def test_a_studys_measures_are_those_of_the_honest_nodes():
    """Attackers that are all linked with each other add to nobody's degree but their own."""
    sections = {
        "protocol": "random",
        "underlay": {"kind": "unit-square", "hosts": 40},
        "random": {"degree": 3},
        "workload": {"topics": 6, "warmup_s": 10, "duration_s": 10, "publish_rate_per_s": 5},
    }
    attack = {"kind": "eclipse", "ratio": 0.5}
    wanted = {"nodes", "degree_mean", "degree_max"}
    calm, attacked = (
        {row.measure: row.value for row in simulate_point(asked, RunSpec(), wanted, HERE) if row.measure in wanted}
        for asked in (experiment(**sections), experiment(**sections, adversary=attack))
    )
    assert (calm["nodes"], attacked["nodes"]) == (40, 20)
    assert attacked["degree_mean"] == pytest.approx(calm["degree_mean"], rel=0.2), "not the 19 links of an attacker"
    assert attacked["degree_max"] < 19


def test_a_study_measures_honest_nodes_with_all_their_links_and_counts_the_frames_that_they_send(tmp_path):
    asked = experiment(
        protocol="topiary",
        underlay={"kind": "unit-square", "hosts": 40},
        workload={"topics": 6, "warmup_s": 5, "duration_s": 5, "publish_rate_per_s": 5},
        interests={"ratio": 0.5},
        adversary={"kind": "eclipse", "ratio": 0.3, "victim_topics": [0]},
    )
    source = tmp_path / "experiment.toml"
    source.write_text('name = "x"\n')
    planned = make_plan(asked, source)
    write_plan(planned, tmp_path / "run")
    simulate_planned(tmp_path / "run")
    honest = {spec.node: spec.topics for spec in planned.overlay.nodes if spec.behaviour is None}
    ends = {node: set() for node in range(40)}
    control_bytes = 0
    for event in _events(tmp_path / "run"):
        at_s = event["ts_ns"] / 1e9 - 1  # after the nodes' start
        if event["event"] == "add_peer" and at_s <= 9:
            ends[event["node"]].add(event["peer"])
        elif event["event"] == "remove_peer" and at_s <= 9:
            ends[event["node"]].discard(event["peer"])
        elif event["event"] == "send" and event["node"] in honest and event["kind"] != Data.kind and 5 <= at_s < 10:
            control_bytes += event["len_bytes"]
    rows = simulate_point(asked, RunSpec(snapshots_s=(9,), newcomers_s=0), set(MEASURES), HERE)
    found = {row.measure: row.value for row in rows if row.moment in (None, 9) and row.by is None}
    degrees = [len(ends[node]) for node in honest]
    assert (found["nodes"], found["degree_mean"], found["degree_max"]) == (28, sum(degrees) / 28, max(degrees))
    assert found["degree_mean"] < sum(map(len, ends.values())) / 40 - 1, "the attackers' mesh is not in it"
    assert found["subscriptions_mean"] == sum(map(len, honest.values())) / 28
    assert found["control_bytes_per_peer_per_s"] == pytest.approx(control_bytes / 28 / 5)


def test_nobody_is_measured_where_all_are_adversaries():
    asked = experiment(
        underlay={"kind": "uniform", "hosts": 10, "delay_ms": 10},
        workload={"topics": 3, "warmup_s": 2, "duration_s": 2},
        adversary={"kind": "slow", "ratio": 1.0},
    )
    rows = simulate_point(asked, RunSpec(), set(MEASURES), HERE)
    assert not [row for row in rows if row.measure in ("nodes", "subscriptions_mean", "control_bytes_per_peer_per_s")]


def _events(run_dir: Path) -> list[dict]:
    return [json.loads(line) for path in (run_dir / "trace").iterdir() for line in path.read_text().splitlines()]


def _count(run_dir: Path, nodes: tuple) -> dict[str, float]:
    """Deliveries from the trace files and the initial subscriptions alone."""
    topics = {spec.node: set(spec.topics) for spec in nodes}
    events = _events(run_dir)
    published = {event["message_id"]: event for event in events if event["event"] == "publish"}
    due = sum(
        1
        for event in published.values()
        for node in topics
        if node != event["node"] and topics[node] & set(event["topics"])
    )
    arrived = [event for event in events if event["event"] == "deliver" and event["hops"] > 0]
    delays_ms = [(event["ts_ns"] - published[event["message_id"]]["ts_ns"]) / 1e6 for event in arrived]
    counts = {name: sum(event["event"] == name for event in events) for name in ("duplicate", "relay")}
    copies = [
        event
        for event in events
        if event["event"] in ("deliver", "duplicate", "relay") and event.get("peer") is not None
    ]
    useless = [event for event in copies if not topics[event["node"]] & set(event["topics"])]
    shares = [
        sum(event["node"] == node for event in useless) / sum(event["node"] == node for event in copies)
        for node in {event["node"] for event in copies}
    ]
    opened = Counter(event["node"] for event in events if event["event"] == "add_peer" and event["direction"] == "orig")
    return {
        "traffic_overhead_ratio": len(useless) / len(copies),
        "node_traffic_overhead_ratio_mean": sum(shares) / len(shares),
        "node_traffic_overhead_ratio_max": max(shares),
        "traffic_overhead_above_20_ratio": sum(share > 0.2 for share in shares) / len(shares),
        "hops_max": max(event["hops"] for event in arrived),
        "opened_links_max": max(opened.values()),
        "opened_links_mean": sum(opened.values()) / len(topics),
        "messages": len(published),
        "delivery_ratio": len(arrived) / due,
        "propagation_delay_ms_mean": sum(delays_ms) / len(delays_ms),
        "hops_mean": sum(event["hops"] for event in arrived) / len(arrived),
        "duplicates_per_delivery": counts["duplicate"] / len(arrived),
        "relay_ratio": counts["relay"] / (len(arrived) + sum(counts.values())),
    }


def test_the_network_has_the_testbeds_delays_without_its_matrix():
    asked = experiment(underlay={"kind": "unit-square", "hosts": 25, "side_ms": 70}, seed=9)
    source = ROOT / "playbooks" / "experiments" / "quickstart.toml"
    underlay: Underlay = make_plan(asked, source).underlay
    asked_network = make_network(asked, HERE)
    network = SimulatedNetwork(asked_network, Random(1))
    assert asked_network.size == 25
    pairs = [(a, b) for a in range(25) for b in range(25)]
    assert [network.delay_ns(*pair) for pair in pairs] == [round(underlay.delay_ms[pair] * 1e6) for pair in pairs]


def test_a_run_ends_when_its_overlay_has_settled_and_shows_its_last_state():
    asked = experiment(underlay={"kind": "uniform", "hosts": 20, "delay_ms": 10}, random={"degree": 3})
    rows = simulate_point(asked, RunSpec(length_s=500, settled_s=4), {"degree_mean", "nodes"}, HERE)
    [degree] = [row for row in rows if row.measure == "degree_mean"]
    assert degree.moment is not None
    assert 4 <= degree.moment <= 8
    assert degree.value > 3
    longer = simulate_point(asked, RunSpec(length_s=30), {"degree_mean"}, HERE)
    assert [row.value for row in longer] == [degree.value]
    late = simulate_point(asked, RunSpec(length_s=500, settled_s=4, control_from_s=50), {"nodes"}, HERE)
    assert [row.moment for row in late] == [pytest.approx(50, abs=2)], "not before it is counted"


def test_stans_topics_stay_connected_while_nodes_come_and_go():
    """Those that are down at the start have views of their own, too; nodes come back with those that they had."""
    asked = experiment(
        protocol="stan",
        underlay={"kind": "unit-square", "hosts": 60},
        workload={"topics": 10},
        interests={"kind": "popularity", "subscriptions_min": 4, "subscriptions_max": 4},
        churn={"kind": "exponential", "on_s": 40, "new_interests": False},
    )
    rows = simulate_point(asked, RunSpec(length_s=120, snapshot_every_s=40), {"topics_partitioned", "nodes"}, HERE)
    assert [row.value for row in rows if row.measure == "topics_partitioned"] == [0, 0, 0]
    assert min(row.value for row in rows if row.measure == "nodes") < 55, "some are down"


def test_snapshots_leave_out_who_has_just_joined_and_who_is_gone():
    script = [
        {"at_s": 5, "node": 0, "action": "join"},
        {"at_s": 8, "node": 1, "action": "crash"},
        {"at_s": 9, "node": 2, "action": "leave"},
    ]
    asked = experiment(
        underlay={"kind": "uniform", "hosts": 12, "delay_ms": 10},
        random={"degree": 3},
        churn={"kind": "script", "script": script},
    )
    run = RunSpec(length_s=12, snapshots_s=(4, 6.5, 7.5, 8.5, 10), newcomers_s=2)
    rows = simulate_point(asked, run, {"nodes"}, HERE)
    assert [(row.moment, row.value) for row in rows] == [(4, 11), (6.5, 11), (7.5, 12), (8.5, 11), (10, 10), (12, 10)]


def test_control_frames_are_counted_for_each_change_after_the_first_instant():
    asked = decode({**CHURN, "testbed": "simulated"}, Experiment)
    run = RunSpec(length_s=30, control_from_s=10)
    found = plain(simulate_point(asked, run, {"control_frames_per_change", "control_frames_per_peer_per_s"}, HERE))
    assert 1 < found["control_frames_per_change"] < 200
    from_the_start = plain(simulate_point(asked, RunSpec(length_s=30), {"control_frames_per_change"}, HERE))
    assert from_the_start["control_frames_per_change"] > found["control_frames_per_change"], "without the building"


def test_frames_for_each_change_are_told_apart_by_kind_and_only_heartbeats_and_links_do_not_count_as_control():
    asked = decode({**CHURN, "testbed": "simulated"}, Experiment)
    wanted = {"control_frames_per_change", "frames_per_change"}
    rows = simulate_point(asked, RunSpec(length_s=30, control_from_s=10), wanted, HERE)
    kinds = {kind_names()[row.by]: row.value for row in rows if row.by is not None}
    apart = {"hello", "bye", "spiderheartbeat"}
    assert kinds.keys() >= apart | {"spiderconnect", "spiderconnectok", "spiderleave"}
    [total] = [row.value for row in rows if row.by is None]
    assert total == pytest.approx(sum(value for kind, value in kinds.items() if kind not in apart))


@pytest.mark.parametrize(("seen_ttl_s", "again"), [(0.2, True), (120.0, False)])
def test_messages_that_come_back_are_counted_as_repeated_deliveries(seen_ttl_s: float, again: bool):
    experiment = decode_experiment(
        {
            "name": "x",
            "protocol": "gossipsub",
            "testbed": "simulated",
            "underlay": {"kind": "uniform", "hosts": 12, "delay_ms": 150},
            "gossipsub": {"connections": 6, "seen_ttl_s": seen_ttl_s},
            "interests": {"ratio": 1.0},
            "workload": {"topics": 1, "publish_rate_per_s": 2, "duration_s": 5, "warmup_s": 5, "cooldown_s": 3},
        }
    )
    rows = simulate_point(experiment, RunSpec(), ["repeated_deliveries", "delivery_ratio"], Path())
    found = {row.measure: row.value for row in rows if row.moment is None}
    assert found["delivery_ratio"] == 1.0
    assert (found["repeated_deliveries"] > 0) == again
