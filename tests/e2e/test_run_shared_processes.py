"""A run whose peers share processes: it is judged like any other, and says how its peers were divided."""

import json

import pytest

from tests.e2e.run_experiment import EXPERIMENT, IN_PROCESS, Finished, finish, speaks_of_load, start

pytestmark = pytest.mark.root

HOSTS = 8
SHARED, PAUSED, ALONE = 3, 0, 7
"""Nodes 1 to 3 and 4 to 6 share a process each; node 7 is left over, and node 0 is paused."""

SETTINGS = f"""
[[faults]]
at_s = 1
for_s = 1
pause = [{PAUSED}]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("shared")
    file = folder / "shared.toml"
    file.write_text(EXPERIMENT.replace("record = true", f"record = true\nper_process = {SHARED}") + SETTINGS)
    words = (*IN_PROCESS, "--out", folder / "run", "--json")
    return Finished(folder / "run", finish(start("run", file, *words)))


def test_is_valid_but_for_load(run: Finished) -> None:
    assert [reason for reason in run.summary["reasons"] if not speaks_of_load(reason)] == []
    states = {state["process"]: state for state in run.manifest["final_states"]}
    assert all(states[f"peer-{node}"]["state"] == "exited" for node in range(HOSTS))


def test_there_are_as_many_processes_as_the_manifest_allows(run: Finished) -> None:
    assert run.manifest["per_process"] == SHARED
    processes = {1 + (node - 1) // SHARED for node in range(HOSTS) if node not in (PAUSED, ALONE)} | {PAUSED, ALONE}
    assert run.manifest["resources"]["peer_processes"] == len(processes)
    shared = json.loads((run.run_dir / "deployment.json").read_text())["shared"]
    assert shared == [list(range(first, first + SHARED)) for first in range(1, ALONE, SHARED)]
    assert "shared" not in run.manifest["deployment"]
    page = (run.run_dir / "report" / "index.html").read_text()
    assert f"up to {SHARED} peers per process" in page


def test_every_node_has_its_own_files_and_addresses(run: Finished) -> None:
    addresses = set()
    for node in range(HOSTS):
        events = run.lines(f"trace/{node}.jsonl")
        assert {event["node"] for event in events} == {node}
        assert (events[0]["event"], events[-1]["event"]) == ("start", "stop")
        assert (run.run_dir / f"record/{node}.msgpack").stat().st_size
        ends = [(event["conn"].split("-"), event["direction"]) for event in events if event["event"] == "add_peer"]
        [own] = {conn[direction == "resp"].partition(":")[0] for conn, direction in ends}
        addresses.add(own)
    assert len(addresses) == HOSTS, "also those of one process"
