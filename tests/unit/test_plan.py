"""Plans: the same for the same seed whatever the hash seed, written once, read back, and predicted by counting."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from harness.cli import main
from harness.errors import ExperimentError
from harness.experiment.loader import load_experiment
from harness.experiment.sections.workload import InterestsSpec
from harness.machine import capacity
from harness.planning import make_plan, read_plan, write_plan
from harness.planning.composition import choose_parts
from harness.planning.copies import count_copies
from harness.planning.overlay_models import Logical, OverlayModel, model_overlay
from harness.planning.plan import PlannedRun
from harness.planning.prediction import expected_copies
from harness.workload.membership import MembershipPlan
from harness.workload.publications import draw_schedule, publish_rule
from metrics.rundir import RunDirError
from metrics.rundir.files import PLAN_FILE
from metrics.rundir.hashes import find_edited
from peer.core.schedule import Join, Leave, Publish
from peer.protocols.registry import PROTOCOLS, Composition
from peer.protocols.stan import initial_views

ROOT = Path(__file__).parents[2]
FILES = ["experiment.toml", "overlay.json", "plan.json", "schedule.jsonl", "underlay.json"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\n[underlay]\nhosts = 12\njitter = 0.5\n[workload]\ntopics_per_message = 2\n')
    return path


def plan(file: Path, *overrides: str) -> PlannedRun:
    return make_plan(load_experiment(file, overrides), file)


def write_in_subprocess(file: Path, folder: Path, hash_seed: str) -> dict[str, bytes]:
    command = [sys.executable, "-m", "harness.cli", "plan", str(file), "--out", str(folder)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_same_file_and_seed_give_the_same_bytes_under_any_hash_seed(file: Path, tmp_path: Path) -> None:
    first = write_in_subprocess(file, tmp_path / "a", "0")
    elsewhere = tmp_path / "moved" / "copy.toml"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(file.read_bytes())
    assert list(first) == FILES
    assert write_in_subprocess(elsewhere, tmp_path / "b", "4242") == first


def test_another_seed_changes_everything_random(file: Path) -> None:
    one, two = plan(file).plan.hashes, plan(file, "seed=2").plan.hashes
    assert {name for name in one if one[name] != two[name]} == {"plan", "underlay", "overlay", "schedule"}


def test_hashes_are_those_of_the_files(file: Path, tmp_path: Path) -> None:
    planned = plan(file)
    write_plan(planned, tmp_path / "run")
    for name, path in {"underlay": "underlay.json", "overlay": "overlay.json", "schedule": "schedule.jsonl"}.items():
        digest = hashlib.sha256((tmp_path / "run" / path).read_bytes()).hexdigest()
        assert planned.plan.hashes[name] == digest


@pytest.mark.parametrize(
    ("name", "edited"),
    [
        (PLAN_FILE, [PLAN_FILE]),
        ("underlay.json", ["underlay.json"]),
        ("overlay.json", ["overlay.json"]),
        ("schedule.jsonl", ["schedule.jsonl"]),
    ],
)
def test_an_edited_document_differs_from_its_hash(name: str, edited: list[str], file: Path, tmp_path: Path) -> None:
    planned = plan(file)
    run_dir = tmp_path / "run"
    write_plan(planned, run_dir)
    assert set(find_edited(run_dir, planned.plan.hashes).values()) == {False}
    content = (run_dir / name).read_bytes()
    (run_dir / name).write_bytes(re.sub(rb"[1-8]", lambda digit: b"%d" % (int(digit[0]) + 1), content, count=1))
    assert [found for found, differs in find_edited(run_dir, planned.plan.hashes).items() if differs] == edited
    assert find_edited(run_dir, {}) == {}


def test_a_moved_node_is_an_edited_placement(file: Path, tmp_path: Path) -> None:
    planned = plan(file)
    write_plan(planned, tmp_path / "run")
    path = tmp_path / "run" / PLAN_FILE
    path.write_text(path.read_text().replace('"host": 1,', '"host": 2,', 1))
    found = find_edited(tmp_path / "run", planned.plan.hashes)
    assert [name for name, differs in found.items() if differs] == [PLAN_FILE, f"the placement in {PLAN_FILE}"]


def test_a_written_plan_reads_back(file: Path, tmp_path: Path) -> None:
    planned = plan(file)
    write_plan(planned, tmp_path / "run")
    found = read_plan(tmp_path / "run")
    assert (found.plan, found.overlay, found.schedule) == (planned.plan, planned.overlay, planned.schedule)
    assert found.underlay.hosts == planned.underlay.hosts
    for name in ("delay_ms", "jitter_ms", "loss_ratio", "rate_mbit", "queue_ms", "filled"):
        assert np.array_equal(getattr(found.underlay, name), getattr(planned.underlay, name)), name
    assert (tmp_path / "run" / "experiment.toml").read_bytes() == file.read_bytes()


def test_a_plan_is_never_overwritten(file: Path, tmp_path: Path) -> None:
    write_plan(plan(file), tmp_path / "run")
    before = (tmp_path / "run" / "plan.json").read_bytes()
    with pytest.raises(ExperimentError, match="File exists"):
        write_plan(plan(file, "seed=2"), tmp_path / "run")
    assert (tmp_path / "run" / "plan.json").read_bytes() == before


def test_a_damaged_plan_is_refused(file: Path, tmp_path: Path) -> None:
    write_plan(plan(file), tmp_path / "run")
    (tmp_path / "run" / "overlay.json").write_text('{"run": 3}')
    with pytest.raises(RunDirError, match=r"run: overlay\.json is damaged: "):
        read_plan(tmp_path / "run")
    (tmp_path / "run" / "overlay.json").unlink()
    with pytest.raises(RunDirError, match=r"run: overlay\.json is missing$"):
        read_plan(tmp_path / "run")
    with pytest.raises(RunDirError, match="elsewhere: No such file or directory"):
        read_plan(tmp_path / "elsewhere")


def test_placement_and_overlay_follow_the_experiment(file: Path) -> None:
    planned = plan(file, "underlay.hosts=300", "random.degree=7", "flood.ttl=3", "underlay.kind=uniform")
    last = planned.plan.placement[299]
    assert (last.node, last.host, last.wan_ip, last.ctl_ip) == (299, 299, "10.0.1.44", "172.16.1.44")
    assert len({place.wan_ip for place in planned.plan.placement}) == 300
    assert planned.overlay.nodes[5].overlay == {"name": "random", "degree": 7}
    assert planned.overlay.nodes[5].dissemination == {"name": "flood", "ttl": 3, "seen_messages": 65536}
    assert 0 < planned.overlay.run < 2**53
    assert plan(file, "protocol=complete").overlay.nodes[0].overlay == {"name": "complete"}


def test_defaults_are_resolved_in_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\n')
    assert plan(path).plan.experiment.underlay.hosts == 20


def test_the_command_prints_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(file), "--seed", "9", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["seed"] == document["experiment"]["seed"] == 9
    assert document["experiment"]["workload"]["cooldown_s"] == 3.0


def test_what_the_command_prints_is_the_experiment_again(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(file)]) == 0
    printed = tmp_path / "printed.toml"
    printed.write_text(capsys.readouterr().out.split("# the plan")[0])
    assert load_experiment(printed) == plan(file).plan.experiment


def test_more_hosts_than_cities_share_cities(file: Path) -> None:
    underlay = plan(file, "underlay.hosts=370", "underlay.access_delay_ms=0.75", "underlay.jitter=none").underlay
    assert underlay.hosts[360].site == underlay.hosts[0].site
    assert underlay.delay_ms[0, 360] == 1.5


def test_what_is_asked_reaches_the_underlay(file: Path) -> None:
    overrides = ["loss_ratio=0.01", "rate_mbit=20", "queue_ms=30", "jitter=0.25"]
    underlay = plan(file, *(f"underlay.{override}" for override in overrides)).underlay
    apart = ~np.eye(12, dtype=bool)
    assert set(underlay.loss_ratio[apart]) == {0.01}
    assert set(underlay.jitter_ms[apart]) == {0.25}
    assert (underlay.rate_mbit == 20.0).all() and underlay.rate_mbit.shape == (2, 12)
    assert (underlay.queue_ms == 30.0).all() and underlay.queue_ms.shape == (2, 12)
    assert not np.diag(underlay.jitter_ms).any()
    assert not np.diag(underlay.loss_ratio).any()


@pytest.mark.parametrize(
    ("overrides", "up_down"),
    [
        (["up_mbit=5", "down_mbit=40"], [5, 40]),
        (["rate_mbit=20", "up_mbit=5"], [5, 20]),
        (["rate_mbit=20", "down_mbit=0"], [20, 0]),
    ],
)
def test_rates_up_and_down_take_the_place_of_the_rate_each_way(
    file: Path, overrides: list[str], up_down: list[float]
) -> None:
    underlay = plan(file, *(f"underlay.{override}" for override in overrides)).underlay
    assert underlay.rate_mbit.tolist() == [[each] * 12 for each in up_down]


def test_churn_is_planned_and_its_script_is_printed_as_toml(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with file.open("a") as text:
        text.write('[churn]\nkind = "script"\n[[churn.script]]\nat_s = -1.5\nnode = 3\naction = "leave"\n')
        text.write('[[churn.script]]\nat_s = 2\nnode = 5\naction = "join"\ntopics = [4, 1]\n')
    planned = plan(file, "membership.refresh_s=2.5")
    assert [spec.up for spec in planned.overlay.nodes] == [node != 5 for node in range(12)]
    assert planned.overlay.nodes[5].topics == ()
    assert planned.overlay.refresh_ns == 2_500_000_000
    changes = [action for action in planned.schedule if not isinstance(action, Publish)]
    assert changes == [Leave(-1_500_000_000, 3), Join(2_000_000_000, 5, (1, 4))]
    assert main(["plan", str(file)]) == 0
    text = capsys.readouterr().out
    assert "11 nodes are up at the start; 2 joins, leaves and other changes follow" in text
    printed = tmp_path / "printed.toml"
    printed.write_text(text.split("# the plan")[0])
    assert load_experiment(printed) == plan(file).plan.experiment


def test_parameters_with_which_nothing_can_be_drawn_are_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_views, "MAX_DRAWS", 2)
    many = ["workload.topics=2", "workload.topics_per_message=1", "interests.ratio=0.9"]
    with pytest.raises(ExperimentError, match="no strongly connected graph in 2 draws") as refused:
        plan(file, "protocol=stan", "stan.degree_factor=0.01", *many)
    assert refused.value.path.endswith("$.stan.degree_factor")


@pytest.mark.parametrize(
    ("interests", "needs", "discloses"),
    [("announced", True, True), ("announced", False, True), ("private", True, True), ("private", False, False)],
)
def test_the_bootstrap_service_discloses_what_is_public_or_needed(
    file: Path, monkeypatch: pytest.MonkeyPatch, interests: str, needs: bool, discloses: bool
) -> None:
    composition = Composition(overlay={"name": "complete"}, interests=interests, needs_interests=needs)
    monkeypatch.setitem(PROTOCOLS, "complete", replace(PROTOCOLS["complete"], composition=composition))
    assert plan(file, "protocol=complete").overlay.discloses is discloses


@pytest.mark.parametrize(
    ("ttl", "interested", "copies"),
    [
        # 0 publishes on the line 0 - 1 - 2 - 3 - 4.
        (0, {0}, 0),
        (0, {0, 1, 2}, 2),
        (0, {0, 2}, 0),
        (1, {0, 2}, 2),
        (1, {0, 3}, 1),
        (1, {0, 1, 3}, 3),
        (2, {0, 3}, 3),
        (2, {0, 2, 3}, 4),
        (255, {0}, 4),
    ],
)
def test_copies_follow_the_ttl_rule(ttl: int, interested: set[int], copies: int) -> None:
    line = OverlayModel([[1], [0, 2], [1, 3], [2, 4], [3]])
    subscribed = [frozenset({7} if node in interested else ()) for node in range(5)]
    assert count_copies({"name": "flood", "ttl": ttl}, line, subscribed, 0, (7,)) == copies


@pytest.mark.parametrize(
    ("topics", "copies"),
    [
        # 0 publishes; the links 0 - 1 - 2 - 0 carry topic 7, 0 - 1 and 1 - 3 topic 8.
        ((7,), 4),
        ((8,), 2),
        ((7, 8), 5),
        ((9,), 0),
    ],
)
def test_copies_follow_the_links_that_carry_their_topics(topics: tuple[int, ...], copies: int) -> None:
    logical: list[Logical] = [{1: {7, 8}, 2: {7}}, {0: {7, 8}, 2: {7}, 3: {8}}, {0: {7}, 1: {7}}, {1: {8}}]
    model = OverlayModel([list(links) for links in logical], logical)
    subscribed = [frozenset({7, 8}), frozenset({7, 8}), frozenset({7}), frozenset({8})]
    for given in (model, OverlayModel(model.neighbours)):
        assert count_copies({"name": "topic-flood"}, given, subscribed, 0, topics) == copies
        # As a whole: under both topics 0 - 1, 0 - 2, 1 - 2, 2 - 1 and 1 - 3, each once, as well.
        assert count_copies({"name": "topic-flood", "whole": True}, given, subscribed, 0, topics) == copies


@pytest.mark.parametrize(
    ("flood_publish", "copies"),
    [
        (False, 3),
        # From 0 to 1, 2 and 3; then from 1 to 2, from 2 to 1 and 3, and from 3 to 2.
        (True, 7),
    ],
)
def test_copies_follow_the_mesh_but_perhaps_those_of_the_publisher(flood_publish: bool, copies: int) -> None:
    """The mesh is the line 0 - 1 - 2 - 3; node 0 is linked with everybody, 4 is not interested."""
    mesh: list[Logical] = [{1: {7}}, {0: {7}, 2: {7}}, {1: {7}, 3: {7}}, {2: {7}}, {}]
    model = OverlayModel([[1, 2, 3, 4], [0, 2], [0, 1, 3], [0, 2], [0]], mesh)
    subscribed = [frozenset({7})] * 4 + [frozenset({8})]
    chosen = {"name": "gossipsub", "flood_publish": flood_publish}
    assert count_copies(chosen, model, subscribed, 0, (7,)) == copies


def test_a_dissemination_that_nobody_counts_is_not_predicted() -> None:
    assert count_copies({"name": "carrier-pigeon"}, OverlayModel([[1], [0]]), [frozenset({7})] * 2, 0, (7,)) is None


def test_a_flood_over_a_complete_graph_crosses_every_link_but_the_first_ones(file: Path) -> None:
    experiment = load_experiment(file, ["protocol=complete", "interests.ratio=1"])
    interests, parts = (tuple(range(10)),) * 12, choose_parts(experiment)
    schedule = draw_schedule(
        experiment.workload, MembershipPlan((True,) * 12, interests, ()), 1, publish_rule(InterestsSpec())
    )
    # Everybody sends to all but itself and the node that it had the message from; the publisher to all others.
    model = model_overlay(parts, interests, 1)
    assert expected_copies(parts.dissemination, model, interests, schedule, 1) == 11 + 11 * 10


def test_dilation_stretches_the_prediction_and_nothing_that_was_asked(file: Path) -> None:
    plain, slow = plan(file), plan(file, "time_dilation=4")
    workload = plain.plan.experiment.workload
    running_s = workload.warmup_s + workload.duration_s + workload.cooldown_s
    assert slow.plan.prediction.wall_s - plain.plan.prediction.wall_s == pytest.approx(3 * running_s, abs=0.2)
    assert slow.plan.prediction.frames_per_s == pytest.approx(plain.plan.prediction.frames_per_s / 4, abs=0.1)
    assert plan(file, "testbed=simulated").plan.prediction.wall_s is None
    for name in ("underlay", "overlay", "schedule"):
        assert slow.plan.hashes[name] == plain.plan.hashes[name]


def test_a_simulation_has_no_wall_time_to_stretch(file: Path) -> None:
    plain, slow = (plan(file, "testbed=simulated", f"time_dilation={factor}") for factor in (1, 4))
    assert slow.plan.prediction == plain.plan.prediction


def test_a_remote_plan_sits_on_the_inventory(file: Path) -> None:
    machine = '[[machines]]\nname = "m{0}"\nhost = "192.0.2.{0}"\nkey = "k"\nknown_hosts = "h"\nhosts = 6\n'
    (file.parent / "lab.toml").write_text("".join(machine.format(number) for number in (1, 2)))
    planned = plan(file, "testbed=remote", "inventory=lab.toml")
    assert {place.machine for place in planned.plan.placement} == {"m1", "m2"}
    with pytest.raises(ExperimentError, match=r"at most 12 hosts .*, got 13"):
        plan(file, "testbed=remote", "inventory=lab.toml", "underlay.hosts=13")


@pytest.mark.data
def test_the_measured_planet_is_planned(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRELLIS_DATA", str(data_folder))
    example = ROOT / "playbooks" / "experiments" / "wan-246.toml"
    planned = plan(example)
    assert planned.underlay.size == len(planned.overlay.nodes) == 246
    assert plan(example).plan == planned.plan
    assert str(data_folder) not in msgspec.json.encode(planned.plan).decode()
    sample = plan(example, "underlay.hosts=30").underlay
    assert sample.size == len({host.site for host in sample.hosts}) == 30
    assert {"Brazil", "Australia"} & {host.country for host in sample.hosts}


def test_a_container_s_limits_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "CGROUP", tmp_path)
    free = capacity.this_machine()
    assert 0 < free.memory_mib < 2**30
    files = {"memory.max": "104857600", "memory.current": "52428800", "pids.max": "40", "pids.current": "7"}
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    limited = capacity.this_machine()
    assert (limited.memory_mib, limited.processes) == (50.0, 33)
    (tmp_path / "memory.max").write_text("max\n")
    assert capacity.this_machine().memory_mib > 50
