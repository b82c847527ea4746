"""Snapshots of a run that goes on, from the files of a recorded one, against counts of our own from the same files."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from harness.live.collector import Collector
from harness.live.peer_files import LOG_BYTES, read_log
from harness.live.snapshot import LATEST_S, MOST_LINKS, FaultSpan, Snapshot
from metrics.recount import recount
from metrics.rundir import DamagedError, RunDir
from metrics.rundir.files import ANALYSIS_LOG, DATAPLANE_FILE, DEPLOYMENT_FILE, PHASES_FILE
from peer.files import EXITS_FILE, log_file
from tests.recorded_run import extract_run
from tests.replayed_run import ReplayedRun, read_events

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_run(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def events(recorded: Path) -> list[dict[str, Any]]:
    return read_events(recorded)


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Iterator[ReplayedRun]:
    replayed = ReplayedRun(recorded, tmp_path / "run")
    replayed.start()
    yield replayed
    replayed.die()


class Counted:
    """What the events until an instant say, counted with sets."""

    def __init__(self, recorded: Path, events: list[dict[str, Any]], now_ns: int) -> None:
        topics = {
            spec["node"]: set(spec["topics"]) for spec in json.loads((recorded / "overlay.json").read_text())["nodes"]
        }
        until = [event for event in events if event["ts_ns"] <= now_ns]
        self.published = {event["message_id"]: event for event in until if event["event"] == "publish"}
        self.expected = {
            (message, node)
            for message, event in self.published.items()
            for node, own in topics.items()
            if own & set(event["topics"]) and node != event["node"]
        }
        self.delivered = {
            (event["message_id"], event["node"]): event["ts_ns"]
            for event in sorted(until, key=lambda event: -event["ts_ns"])
            if event["event"] == "deliver" and (event["message_id"], event["node"]) in self.expected
        }

    def delays_ms(self, after_ns: int) -> list[float]:
        return [
            (at_ns - self.published[message]["ts_ns"]) / 1e6
            for (message, _), at_ns in self.delivered.items()
            if at_ns > after_ns
        ]


@pytest.mark.parametrize("now_s", [0.5, 2.0, 3.7])
def test_counts_messages_and_deliveries_so_far(run: ReplayedRun, events: list[dict[str, Any]], now_s: float) -> None:
    now_ns = run.at(now_s)
    counted = Counted(run.recorded, events, now_ns)
    found = Collector(run.run_dir).collect(now_ns).messages
    assert counted.published and counted.delivered
    assert (found.published, found.expected) == (len(counted.published), len(counted.expected))
    assert found.delivered == len(counted.delivered)
    assert found.ratio == len(counted.delivered) / len(counted.expected)


def test_a_collector_that_began_earlier_finds_the_same(run: ReplayedRun) -> None:
    early = Collector(run.run_dir)
    for now_s in (-0.2, 0.9, 1.0, 2.3):
        early.collect(run.at(now_s))
    now_ns = run.at(3.1)
    assert early.collect(now_ns) == Collector(run.run_dir).collect(now_ns)


def test_delays_are_those_of_the_last_seconds(run: ReplayedRun, events: list[dict[str, Any]]) -> None:
    now_ns = run.at(3.0)
    delays_ms = Counted(run.recorded, events, now_ns).delays_ms(now_ns - round(LATEST_S * SECOND))
    found = Collector(run.run_dir).collect(now_ns).delay_ms
    assert found is not None
    assert found.deliveries == len(delays_ms)
    assert (found.p50, found.p99) == pytest.approx(tuple(np.quantile(delays_ms, (0.5, 0.99))))
    assert 0 < found.until_s <= 3.0


def test_links_are_the_pairs_that_sent_frames(run: ReplayedRun, events: list[dict[str, Any]]) -> None:
    now_ns = run.at(3.0)
    last = now_ns // SECOND - 2
    sent: dict[tuple[int, int], int] = {}
    for event in events:
        if event["event"] == "send" and last - 3 < event["ts_ns"] // SECOND <= last:
            ends = min(event["node"], event["peer"]), max(event["node"], event["peer"])
            sent[ends] = sent.get(ends, 0) + event["len_bytes"]
    found = Collector(run.run_dir).collect(now_ns).links
    assert found is not None
    assert sent and len(sent) <= MOST_LINKS
    assert {(each.a, each.b): each.bytes for each in found} == sent


def test_history_adds_up_to_the_totals(run: ReplayedRun) -> None:
    run.finish()
    found = Collector(run.run_dir).collect(run.manifest.timeline.end_ns)
    assert sum(each.published or 0 for each in found.history) == found.messages.published
    assert sum(each.delivered or 0 for each in found.history) == found.messages.delivered
    assert [each.at_s for each in found.history] == list(range(found.history[0].at_s, found.history[-1].at_s + 1))


def test_the_last_numbers_are_those_of_the_documents(run: ReplayedRun, events: list[dict[str, Any]]) -> None:
    now_ns = run.finish()
    found = Collector(run.run_dir).collect(now_ns)
    counted = Counted(run.recorded, events, now_ns)
    assert found.messages.expected == recount(RunDir(run.recorded), 0, 0).expected
    assert found.messages.delivered == len(counted.delivered)
    assert (found.peers.up, found.peers.ended) == (0, len(run.manifest.final_states))
    assert found.ended is not None
    assert found.ended.state == "not analysed"


def test_reads_on_when_the_traces_are_collected(run: ReplayedRun) -> None:
    collector = Collector(run.run_dir)
    collector.collect(run.at(2.0))
    now_ns = run.collect()
    assert collector.collect(now_ns).messages == Collector(run.run_dir).collect(now_ns).messages


def test_before_the_stage_begins_nothing_is_known(recorded: Path, tmp_path: Path) -> None:
    waiting = ReplayedRun(recorded, tmp_path / "run")
    found = Collector(waiting.run_dir).collect(1)
    assert (found.now_s, found.phase, found.phases, found.ended) == (None, None, (), None)
    assert (found.messages.published, found.delay_ms, found.plane, found.pressure, found.links) == (None,) * 5
    assert (found.peers.up, found.peers.ready, found.peers.ended) == (None, None, None)
    assert found.verdict == "valid so far"


def test_while_the_network_is_probed_no_message_is_known(run: ReplayedRun) -> None:
    phase = run.manifest.timeline.phase("probe_before")
    assert phase is not None
    now_ns = run.at((phase.start_ns - run.zero_ns) / 1e9 + 0.001)
    found = Collector(run.run_dir).collect(now_ns)
    assert (found.phase, found.now_s, found.messages.published) == ("probe_before", None, None)
    assert (found.peers.up, found.peers.ready) == (8, None)


def test_phases_of_the_workload_are_planned_and_then_run(run: ReplayedRun) -> None:
    now_ns = run.at(1.0)
    found = Collector(run.run_dir).collect(now_ns)
    workload = run.manifest.timeline.phase("workload")
    assert workload is not None
    length_s = (workload.end_ns - workload.start_ns) / SECOND
    assert found.phase == "workload"
    assert found.now_s == pytest.approx(1.0)
    assert found.phase_left_s == pytest.approx(length_s - 1.0)
    states = {each.name: each.state for each in found.phases}
    assert (states["warmup"], states["workload"], states["cooldown"]) == ("over", "running", "planned")


def test_a_stage_that_died_has_failed(run: ReplayedRun) -> None:
    now_ns = run.at(1.0)
    run.die()
    found = Collector(run.run_dir).collect(now_ns)
    assert found.ended is not None
    assert (found.ended.state, found.phase, found.run_left_s) == ("failed", None, None)


def test_a_stage_that_has_just_begun_has_not_failed(run: ReplayedRun) -> None:
    run.die()  # the file is there, and not locked yet
    assert (run.run_dir / PHASES_FILE).read_bytes() == b""
    assert Collector(run.run_dir).collect(1).ended is None


def test_a_killed_peer_makes_the_run_invalid(run: ReplayedRun) -> None:
    now_ns = run.at(1.0)
    end = {"process": "peer-3", "expected": "exited", "state": "signalled", "status": 9, "at_ns": now_ns - SECOND // 2}
    (run.work / EXITS_FILE).write_text(json.dumps(end) + "\n")
    found = Collector(run.run_dir).collect(now_ns)
    assert (found.verdict, found.peers.up, found.peers.ended) == ("invalid", 7, 1)
    assert [reason.text for reason in found.reasons if "peer-3" in reason.text] == [
        "peer-3 was killed by signal 9 at 0.5 s, expected exited."
    ]


def test_late_frames_make_the_run_invalid_by_the_rule_of_the_verdict(run: ReplayedRun) -> None:
    now_ns = run.at(3.0)
    path = run.run_dir / DATAPLANE_FILE
    lines = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    late = [
        line | {"lateness_counts": [[50_000_000, 100]], "frames_late": 100 * number}
        for number, line in enumerate(lines)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in late))
    found = Collector(run.run_dir).collect(now_ns)
    assert found.verdict == "invalid"
    assert ("plane_lateness", "invalid") in {(reason.check, reason.severity) for reason in found.reasons}
    assert found.plane is not None
    assert found.plane.lateness_run_p99_ms == 50.0


def test_drops_that_the_experiment_asks_for_are_told_apart(run: ReplayedRun) -> None:
    """The recorded network loses packets, as the experiment asks."""
    plane = Collector(run.run_dir).collect(run.at(3.0)).plane
    assert plane is not None
    assert plane.drops["loss"] > 0
    assert plane.unasked_drops == 0


def test_the_stage_has_every_node_and_the_limits_of_the_experiment(run: ReplayedRun) -> None:
    stage = Collector(run.run_dir).stage
    assert [node.node for node in stage.nodes] == list(range(8))
    limits = {limit.check: limit.value for limit in stage.limits}
    asked = json.loads((run.recorded / "plan.json").read_text())["experiment"]["verdict"]
    assert limits["plane_lateness"] == asked["lateness_p99_ms"]


def test_the_log_of_a_peer_is_that_of_its_work_folder(run: ReplayedRun) -> None:
    run.at(1.0)
    long = "".join(f"line {number}\n" for number in range(LOG_BYTES // 8))
    (run.work / log_file(2)).write_text(long)
    found = read_log(run.run_dir, 2)
    assert found is not None
    assert len(found) <= LOG_BYTES
    assert long.endswith(found.decode())
    assert found.startswith(b"line ")
    assert read_log(run.run_dir, 3) is None


def test_peers_of_one_process_have_its_log(run: ReplayedRun) -> None:
    run.at(1.0)
    (run.run_dir / DEPLOYMENT_FILE).write_text(json.dumps({"folder": run.work.name, "shared": [[1, 2, 5], [3, 4]]}))
    for node in (0, 1, 3):
        (run.work / log_file(node)).write_text(f"of process {node}\n")
    found = [read_log(run.run_dir, node) for node in range(7)]
    assert found == [None if first is None else b"of process %d\n" % first for first in (0, 1, 1, 3, 3, 1, None)]


def test_a_log_that_a_peer_has_replaced_by_a_link_is_not_read(run: ReplayedRun, tmp_path: Path) -> None:
    run.at(1.0)
    (tmp_path / "secret").write_text("secret")
    (run.work / log_file(2)).symlink_to(tmp_path / "secret")
    os.mkfifo(run.work / log_file(3))
    assert (read_log(run.run_dir, 2), read_log(run.run_dir, 3)) == (None, None)


def test_a_snapshot_is_the_same_after_its_way_as_json(run: ReplayedRun) -> None:
    found = Collector(run.run_dir).collect(run.at(2.5))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Snapshot) == found


@pytest.fixture
def remote(run: ReplayedRun) -> ReplayedRun:
    """The run as if its peers were on other machines: their traces come when the run is over."""
    plan = json.loads((run.run_dir / "plan.json").read_text())
    plan["experiment"]["testbed"] = "remote"
    (run.run_dir / "plan.json").write_text(json.dumps(plan))
    return run


def test_of_peers_on_other_machines_only_the_phases_are_known(remote: ReplayedRun) -> None:
    now_ns = remote.at(2.0)
    shutil.rmtree(remote.work)
    found = Collector(remote.run_dir).collect(now_ns)
    assert (found.phase, found.peers.ready, found.peers.up) == ("workload", 8, None)
    assert (found.messages.published, found.messages.delivered, found.links) == (None, None, None)
    assert [each.published for each in found.history] == [None] * len(found.history)
    [remark] = found.remarks
    assert "the traces are on other machines" in remark


def test_what_other_machines_recorded_is_known_at_the_end(remote: ReplayedRun, events: list[dict[str, Any]]) -> None:
    now_ns = remote.finish()
    found = Collector(remote.run_dir).collect(now_ns)
    assert found.messages.delivered == len(Counted(remote.recorded, events, now_ns).delivered)
    assert found.remarks == ()


def test_faults_are_those_of_the_experiment_and_end_with_the_cooldown(run: ReplayedRun) -> None:
    plan = json.loads((run.run_dir / "plan.json").read_text())
    late, early = {"at_s": 2.0, "for_s": 1e5, "pause": 2}, {"at_s": 1.0, "for_s": 0.5, "cut": ["all", "rest"]}
    plan["experiment"]["faults"] = [late, early]
    (run.run_dir / "plan.json").write_text(json.dumps(plan))
    end_s = sum(plan["experiment"]["workload"][name] for name in ("duration_s", "cooldown_s"))
    found = Collector(run.run_dir).collect(run.at(1.0)).faults
    assert found == (FaultSpan("cut", 1.0, 1.5), FaultSpan("pause", 2.0, end_s))


def test_a_testbed_of_another_version_is_refused(run: ReplayedRun) -> None:
    plan = json.loads((run.run_dir / "plan.json").read_text())
    plan["experiment"]["testbed"] = "of-another-version"
    (run.run_dir / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(DamagedError, match=r"plan\.json is damaged: testbed of-another-version"):
        Collector(run.run_dir)


def test_a_run_of_a_protocol_that_is_not_installed_is_shown(run: ReplayedRun) -> None:
    plan = json.loads((run.run_dir / "plan.json").read_text())
    plan["experiment"]["protocol"] = "of-a-plugin"
    (run.run_dir / "plan.json").write_text(json.dumps(plan))
    found = Collector(run.run_dir).collect(run.at(1.0))
    assert (found.run.protocol, found.phase) == ("of-a-plugin", "workload")


def test_an_analysis_that_ends_after_the_files_were_read_is_not_taken_for_none(
    run: ReplayedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its summary was not there yet when they were read, so the next snapshot has it."""
    now_ns = run.finish()
    works = [True]
    monkeypatch.setattr(
        "harness.live.collector.is_locked", lambda path: path.name == ANALYSIS_LOG and bool(works and works.pop())
    )
    collector = Collector(run.run_dir)
    assert collector.collect(now_ns).ended is None
    ended = collector.collect(now_ns).ended
    assert ended is not None and ended.state == "not analysed", "nobody works on it"
