"""Which peers a plan puts into one process, and what the run is told of it."""

from pathlib import Path

import pytest

from harness.deployment.agents import Site, build_agent_specs
from harness.errors import ExperimentError
from harness.experiment.abilities import ignored_keys
from harness.experiment.loader import load_experiment
from harness.planning import make_plan
from harness.planning.needs import PEER_MIB, SHARED_PEER_MIB, estimate_needs
from harness.planning.plan import PlannedRun
from harness.planning.processes import describe_processes, find_apart, share_processes
from peer.runtime.limits import HOST_FILES, needed_files

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


def test_programs_cannot_share_a_process(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="programs need a process each: expected 1, got 2"):
        plan(tmp_path, 2, 'command = ["true"]')


def test_the_simulator_says_that_the_key_has_no_effect(tmp_path: Path) -> None:
    experiment = plan(tmp_path, 2, testbed="simulated").plan.experiment
    assert any(text.startswith("peer.per_process has no effect") for text in ignored_keys(experiment))
