"""One experiment file with a pause on two testbeds: no paused peer does anything meanwhile, and the run is valid."""

import pytest

from tests.e2e.run_experiment import EXPERIMENT, Finished, finish, speaks_of_load, start

pytestmark = pytest.mark.root

PAUSED, OTHERS = (0, 3), (1, 2, 4, 5, 6, 7)
FROM_NS, TO_NS = 1_500_000_000, 3_500_000_000
PAUSE = """
[[faults]]
at_s = 1.5
for_s = 2
pause = [0, 3]
"""
SLACK_NS = 5_000_000
"""The limit of ``changes_applied``: a peer may do something between the instant asked for and the one applied."""


@pytest.fixture(scope="module", params=["emulated", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("run")
    file = folder / "paused.toml"
    file.write_text(EXPERIMENT.replace("record = true", "") + PAUSE)
    words = ("--testbed", request.param, "--out", folder / "run", "--json")
    return Finished(folder / "run", finish(start("run", file, *words)))


def events_inside(run: Finished, nodes: tuple[int, ...]) -> int:
    """How many events nodes traced in the pause."""
    zero_ns = run.manifest["zero_ns"]
    return sum(
        zero_ns + FROM_NS + SLACK_NS <= event["ts_ns"] < zero_ns + TO_NS
        for node in nodes
        for event in run.lines(f"trace/{node}.jsonl")
    )


def test_is_valid_but_for_load(run: Finished) -> None:
    assert [reason for reason in run.summary["reasons"] if not speaks_of_load(reason)] == []


def test_paused_peers_do_nothing_and_the_others_go_on(run: Finished) -> None:
    assert events_inside(run, PAUSED) == 0
    assert events_inside(run, OTHERS) > 10


def test_the_plan_is_the_same_on_both_testbeds(run: Finished) -> None:
    [change] = run.lines("changes.jsonl")
    assert change == {"from_ns": FROM_NS, "to_ns": TO_NS, "fault": 0, "paused": list(PAUSED)}


def test_the_instants_of_the_pause_are_judged_where_processes_are_paused(run: Finished) -> None:
    check = next(check for check in run.summary["checks"] if check["name"] == "changes_applied")
    if "certify" not in run.manifest["can"]:
        assert check["outcome"] == "not applicable"
    else:
        assert (check["tested"], check["outcome"] == "passed" or bool(check["late"])) == (2, True)
