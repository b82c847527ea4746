"""A protocol from ``trellis new``, outside the repository: simulated, emulated, compared with gossipsub."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.run_experiment import IN_PROCESS, QUICKLY, Finished, finish, speaks_of_load, start, trellis

pytestmark = pytest.mark.root

SMALL = [
    f"--set={setting}"
    for setting in (
        "underlay.hosts=10",
        "random.degree=3",
        "workload.topics=3",
        "workload.warmup_s=4",
        "workload.duration_s=5",
        "interests.ratio=0.7",
        "prometheus.enabled=false",
    )
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own") / "mine"
    subprocess.run(trellis("new", "protocol", "push-gossip", folder), check=True)
    return folder


RUNS = {"emulated": ["--testbed=emulated"], "simulated": [], "gossipsub": ["--set=protocol=gossipsub"]}
"""What the command line of each run says besides."""


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Finished]:
    """Runs of the new protocol's experiment, beside each other."""
    experiment = folder / "experiment.toml"
    started = {
        name: start("run", experiment, *SMALL, *QUICKLY, *words, "--out", folder / name, "--json")
        for name, words in RUNS.items()
    }
    return {name: Finished(folder / name, finish(process)) for name, process in started.items()}


@pytest.mark.slow
def test_it_runs_on_two_testbeds_and_is_compared_with_gossipsub(runs: dict[str, Finished]) -> None:
    for each in runs.values():
        assert [reason for reason in each.summary["reasons"] if not speaks_of_load(reason)] == []
        assert each.summary["headline"]["delivery_ratio"] > 0.9
        [plugin] = each.manifest["plugins"]
        assert (plugin["name"], len(plugin["sha256"])) == ("push_gossip", 64)
    compared = subprocess.run(
        trellis("compare", runs["simulated"].run_dir, runs["gossipsub"].run_dir),
        capture_output=True,
        text=True,
        check=False,
    )
    assert compared.returncode == 0, compared.stderr
    assert compared.stdout.split()[:2] == ["push-gossip", "gossipsub"]


STUDY = [
    f"--set={setting}"
    for setting in (
        "seeds=1",
        "grid.push_gossip.fanout=[2, 3]",
        "experiment.underlay.hosts=10",
        "experiment.workload.topics=3",
        "experiment.workload.duration_s=5",
    )
]


@pytest.mark.slow
@pytest.mark.long
def test_a_sweep_repeats_the_runs_of_a_plugin_that_was_changed_and_no_others(folder: Path) -> None:
    """Even if only a comment was changed."""

    def sweep() -> str:
        words = ("sweep", folder / "study.toml", *STUDY, "--out", folder / "swept", "--master", "here")
        done = subprocess.run(trellis(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    told = sweep()
    assert "3 different runs (points: 4, seeds: 1; " in told, "gossipsub has no fanout"
    assert "0 of 3 are done already, 3 to do\n" in told
    before = {path: path.stat().st_mtime_ns for path in (folder / "swept" / "runs").iterdir()}
    with (folder / "push_gossip" / "dissemination.py").open("a") as code:
        code.write("# a comment\n")
    assert "1 of 3 are done already, 2 to do\n" in sweep()
    after = {path: path.stat().st_mtime_ns for path in (folder / "swept" / "runs").iterdir()}
    assert (len(before), len(after)) == (3, 3)
    [kept] = before.items() & after.items()
    assert b"gossipsub" in kept[0].read_bytes()


@pytest.mark.slow
def test_a_run_is_analysed_without_its_plugin(folder: Path, runs: dict[str, Finished]) -> None:
    """What a run folder says of its protocol is never imported."""
    before = runs["simulated"].summary["headline"]
    code = folder / "push_gossip"
    code.rename(folder / "elsewhere")
    try:
        done = subprocess.run(
            trellis("report", folder / "simulated", *IN_PROCESS, "--json"), capture_output=True, text=True, check=False
        )
    finally:
        (folder / "elsewhere").rename(code)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["headline"] == before
