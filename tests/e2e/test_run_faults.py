"""A run with a partition: what the captures show of it, when it was applied, and what the verdict says."""

from pathlib import Path

import numpy as np
import pytest

from metrics.host_captures import read_seen
from metrics.pcap.records import TX
from tests.e2e.run_experiment import EXPERIMENT, Finished, finish, speaks_of_load, start

pytestmark = pytest.mark.root

HOSTS, LEFT = 8, 4
PARTITION = """
[[faults]]
at_s = 1.5
for_s = 2
partition = ["left", "rest"]

[groups]
left = { nodes = [0, 1, 2, 3] }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("run")
    file = folder / "parted.toml"
    file.write_text(EXPERIMENT + PARTITION)
    return Finished(folder / "run", finish(start("run", file, "--out", folder / "run", "--json")))


def test_is_valid_but_for_load(run: Finished) -> None:
    assert [reason for reason in run.summary["reasons"] if not speaks_of_load(reason)] == []


def test_both_instants_are_applied_when_they_are_due(run: Finished) -> None:
    first, last = run.lines("faults.jsonl")
    assert last["asked_ns"] - first["asked_ns"] == 2_000_000_000
    assert all(line["asked_ns"] <= line["applied_ns"] for line in (first, last))
    check = next(check for check in run.summary["checks"] if check["name"] == "changes_applied")
    assert (check["tested"], check["outcome"] == "passed" or bool(check["late"])) == (2, True)


def test_no_frame_enters_a_cut_pair_between_the_applied_instants(run: Finished) -> None:
    begin_ns, end_ns = (line["applied_ns"] for line in run.lines("faults.jsonl"))
    entered_ns = np.concatenate([crossing(run, host) for host in range(HOSTS)])
    assert (entered_ns < begin_ns).sum() > 10
    assert (entered_ns >= end_ns).sum() > 10
    assert not ((begin_ns <= entered_ns) & (entered_ns < end_ns)).any()
    assert run.manifest["counters"]["plane_drops_cut"] > 10


def crossing(run: Finished, host: int) -> np.ndarray:
    """When packets from a host to the other side entered the network, by the data plane's capture."""
    files: list[Path] = [run.run_dir / name for name in run.manifest["capture_files"]]
    seen = read_seen(files, host, run.manifest["epoch_offset_ns"])
    assert seen is not None
    there = seen.keys[:, 19].astype(int) - 1  # host n has the address 10.0.0.(n + 1)
    return np.asarray(seen.at_ns[(seen.tap == TX) & ((there < LEFT) != (host < LEFT))])
