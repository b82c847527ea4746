"""One experiment file with a partition and a pause on two testbeds: what was applied, what shows it, and the verdict.

No frame crosses the cut, no paused peer does anything, and the run is valid all the same. No other test runs beside
these: a peer that is paused late, or a scrape that times out, would say nothing.
"""

from pathlib import Path

import numpy as np
import pytest

from metrics.pcap.records import TX
from metrics.recorded.host_captures import read_seen
from tests.e2e.run_experiment import EXPERIMENT, QUICKLY, Finished, finish, speaks_of_load, start

pytestmark = pytest.mark.root

HOSTS, LEFT = 8, 4
PAUSED, OTHERS = (0, 3), (1, 2, 4, 5, 6, 7)
CUT_NS, PAUSE_NS = (1_000_000_000, 3_000_000_000), (1_500_000_000, 3_500_000_000)
FAULTS = """
[[faults]]
at_s = 1
for_s = 2
partition = ["left", "rest"]

[[faults]]
at_s = 1.5
for_s = 2
pause = [0, 3]

[groups]
left = { nodes = [0, 1, 2, 3] }
"""
SLACK_NS = 5_000_000
"""The limit of ``changes_applied``: a peer may do something between the instant asked for and the one applied."""


def run_on(testbed: str, folder: Path) -> Finished:
    file = folder / "faults.toml"
    file.write_text(EXPERIMENT.replace("record = true", "") + FAULTS)
    words = (*QUICKLY, "--testbed", testbed, "--out", folder / "run", "--json")
    return Finished(folder / "run", finish(start("run", file, *words)))


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run_on("emulated", tmp_path_factory.mktemp("emulated"))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run_on("simulated", tmp_path_factory.mktemp("simulated"))


@pytest.fixture(params=["emulated", "simulated"])
def run(request: pytest.FixtureRequest) -> Finished:
    finished: Finished = request.getfixturevalue(request.param)
    return finished


def test_is_valid_but_for_load(run: Finished) -> None:
    assert [reason for reason in run.summary["reasons"] if not speaks_of_load(reason)] == []


def test_the_plan_is_the_same_on_both_testbeds(run: Finished) -> None:
    *cuts, pause = run.lines("changes.jsonl")
    assert {(cut["from_ns"], cut["to_ns"], cut["fault"]) for cut in cuts} == {(*CUT_NS, 0)}
    assert pause == {"from_ns": PAUSE_NS[0], "to_ns": PAUSE_NS[1], "fault": 1, "paused": list(PAUSED)}


def test_prometheus_scraped_while_the_run_lasted(emulated: Finished) -> None:
    counters = emulated.manifest["counters"]
    assert counters["scrapes_failed"] < counters["scrapes"]


# ------------------------------------------------------------------------------------------------------- the pause


def events_inside(run: Finished, nodes: tuple[int, ...]) -> int:
    """How many events nodes traced in the pause."""
    from_ns, to_ns = (run.manifest["zero_ns"] + at_ns for at_ns in PAUSE_NS)
    return sum(
        from_ns + SLACK_NS <= event["ts_ns"] < to_ns for node in nodes for event in run.lines(f"trace/{node}.jsonl")
    )


def test_paused_peers_do_nothing_and_the_others_go_on(run: Finished) -> None:
    assert events_inside(run, PAUSED) == 0
    assert events_inside(run, OTHERS) > 10


def test_the_instants_are_judged_where_faults_are_applied(run: Finished) -> None:
    check = next(check for check in run.summary["checks"] if check["name"] == "changes_applied")
    if "certify" not in run.manifest["can"]:
        assert check["outcome"] == "not applicable"
    else:
        assert (check["tested"], check["outcome"] == "passed" or bool(check["late"])) == (4, True)


# --------------------------------------------------------------------------------------------------- the partition


def test_every_instant_is_applied_when_it_is_due(emulated: Finished) -> None:
    lines = emulated.lines("faults.jsonl")
    asked = [line["asked_ns"] - emulated.manifest["zero_ns"] for line in lines]
    assert asked == sorted((*CUT_NS, *PAUSE_NS))
    assert all(line["asked_ns"] <= line["applied_ns"] for line in lines)


def test_no_frame_enters_a_cut_pair_between_the_applied_instants(emulated: Finished) -> None:
    applied_ns = {line["asked_ns"]: line["applied_ns"] for line in emulated.lines("faults.jsonl")}
    begin_ns, end_ns = (applied_ns[emulated.manifest["zero_ns"] + at_ns] for at_ns in CUT_NS)
    entered_ns = np.concatenate([crossing(emulated, host) for host in range(HOSTS)])
    assert (entered_ns < begin_ns).sum() > 10
    assert (entered_ns >= end_ns).sum() > 10
    assert not ((begin_ns <= entered_ns) & (entered_ns < end_ns)).any()
    assert emulated.manifest["counters"]["plane_drops_cut"] > 10


def crossing(run: Finished, host: int) -> np.ndarray:
    """When packets from a host to the other side entered the network, by the data plane's capture."""
    files: list[Path] = [run.run_dir / name for name in run.manifest["capture_files"]]
    seen = read_seen(files, host, run.manifest["epoch_offset_ns"])
    assert seen is not None
    there = seen.keys[:, 19].astype(int) - 1  # host n has the address 10.0.0.(n + 1)
    return np.asarray(seen.at_ns[(seen.tap == TX) & ((there < LEFT) != (host < LEFT))])
