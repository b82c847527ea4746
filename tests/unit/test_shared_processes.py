"""Which peers a plan puts into one process, and what the run is told of it."""

import re
from pathlib import Path

import pytest

from harness.deployment.agents import Site, build_agent_specs
from harness.errors import ExperimentError
from harness.experiment.abilities import ignored_keys
from harness.experiment.loader import load_experiment
from harness.machine.capacity import Capacity
from harness.planning import make_plan, prediction
from harness.planning.needs import PEER_MIB, SHARED_PEER_MIB, estimate_needs
from harness.planning.plan import PlannedRun
from harness.planning.prediction import refuse_oversized
from harness.planning.processes import describe_processes, find_apart, share_processes
from peer.runtime.limits import HOST_FILES, most_peers, needed_files

APART = """
[adversary]
kind = "dropper"
nodes = [5]
[churn]
kind = "script"
script = [
  { at_s = 1, node = 3, action = "crash" },
  { at_s = 2, node = 4, action = "leave" },
  { at_s = 3, node = 4, action = "join" },
]
[[faults]]
pause = [7, 8]
at_s = 1
for_s = 1
"""


def plan(folder: Path, per_process: int, more: str = "", testbed: str = "emulated") -> PlannedRun:
    path = folder / "x.toml"
    path.write_text(
        f'name = "x"\ntestbed = "{testbed}"\n[underlay]\nhosts = 12\n[peer]\nper_process = {per_process}\n{more}'
    )
    return make_plan(load_experiment(path), path, here=False)


@pytest.mark.parametrize("per_process", [1, 5, 12, 100])
def test_peers_fill_processes_in_the_order_of_their_numbers(per_process: int, tmp_path: Path) -> None:
    shared = share_processes(plan(tmp_path, per_process))
    assert (
        shared
        == {
            1: (),
            5: ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9), (10, 11)),
            12: (tuple(range(12)),),
            100: (tuple(range(12)),),
        }[per_process]
    )


def test_nodes_that_crash_pause_or_misbehave_are_apart_and_nodes_that_leave_are_not(tmp_path: Path) -> None:
    planned = plan(tmp_path, 4, APART)
    assert find_apart(planned) == {3: "crashes", 5: "misbehaves", 7: "is paused", 8: "is paused"}
    assert share_processes(planned) == ((0, 1, 2, 4), (6, 9, 10, 11))
    assert list(describe_processes(planned)) == [
        "8 peers in 2 processes, at most 4 in each; 4 alone",
        "1 alone, since the node crashes",
        "2 alone, since the node is paused",
        "1 alone, since the node misbehaves",
    ]


def test_a_plan_with_a_process_per_peer_says_nothing_of_it(tmp_path: Path) -> None:
    assert list(describe_processes(plan(tmp_path, 1))) == []


def test_each_agent_is_told_of_the_processes_of_its_machine(tmp_path: Path) -> None:
    experiment = plan(tmp_path, 2).plan.experiment
    sites = [Site(node, f"m{node % 2}", ("192.0.2.1", 9000 + node), None) for node in range(6)]
    specs = build_agent_specs(experiment, sites, shared=((0, 2), (1, 5)))
    assert {name: spec.shared for name, spec in specs.items()} == {"m0": ((0, 2),), "m1": ((1, 5),)}
    divided = [[place.node for place in places] for places in specs["m1"].divide()]
    assert divided == [[1, 5], [3]]


def test_a_shared_process_is_predicted_to_need_less_memory_and_more_files(tmp_path: Path) -> None:
    alone, shared, apart = (
        estimate_needs(plan(tmp_path, most, more).plan.experiment, 12).capacity
        for most, more in ((1, ""), (6, ""), (6, APART))
    )
    assert alone.memory_mib - shared.memory_mib == pytest.approx(10 * (PEER_MIB - SHARED_PEER_MIB))
    assert apart.memory_mib == alone.memory_mib, "as if each had its own process"
    assert (alone.open_files, shared.open_files) == (needed_files(12), needed_files(12, 6))
    assert needed_files(12, 6) > needed_files(12) == needed_files(12, HOST_FILES // 2)


def test_more_peers_in_a_process_than_there_are_need_no_more_files(tmp_path: Path) -> None:
    several = [estimate_needs(plan(tmp_path, most).plan.experiment, 12).capacity.open_files for most in (12, 1000)]
    assert several[0] == several[1] == needed_files(12, 12)


@pytest.mark.parametrize(("hosts", "files"), [(246, 20_000), (246, 1048), (12, 112), (12, 135), (12, 136)])
def test_the_most_peers_of_a_process_are_the_most_whose_files_may_be_open(hosts: int, files: int) -> None:
    most = most_peers(hosts, files)
    assert needed_files(hosts, most) <= files < needed_files(hosts, most + 1)


def test_no_process_is_small_enough_if_one_peer_in_each_needs_too_many_files() -> None:
    assert most_peers(246, needed_files(246) - 1) == 0


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            112,
            "$.peer.per_process: expected at most 2 with 12 hosts on this machine, got 6: they need 208 open files in ",
        ),
        (111, "$.underlay.hosts: 12 hosts need 208 open files in one process, this machine has 111"),
    ],
)
def test_a_refusal_for_open_files_names_the_most_peers_that_fit(
    files: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = plan(tmp_path, 6).plan.experiment
    machine = Capacity(processes=1e6, memory_mib=1e6, open_files=files)
    monkeypatch.setattr(prediction, "this_machine", lambda: machine)
    with pytest.raises(ExperimentError, match=re.escape(problem)):
        refuse_oversized(experiment, 12)


def test_programs_cannot_share_a_process(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="programs need a process each: expected 1, got 2"):
        plan(tmp_path, 2, 'command = ["true"]')


def test_the_simulator_says_that_the_key_has_no_effect(tmp_path: Path) -> None:
    experiment = plan(tmp_path, 2, testbed="simulated").plan.experiment
    assert any(text.startswith("peer.per_process has no effect") for text in ignored_keys(experiment))
