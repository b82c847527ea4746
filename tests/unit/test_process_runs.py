"""Points of a study whose peers are processes: which runs are made, and which of their numbers count."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from harness.commands import process_runs, sweep
from harness.commands.process_runs import make_process_runs
from harness.commands.run import StageError
from harness.errors import ExperimentError, TestbedError, TrellisError
from harness.stages.analysis import AnalysisError, exclusive
from harness.studies import code_hash
from harness.studies.code_hash import Module, code_now, code_of
from harness.studies.executor import OUTCOMES, Failure, Success, perform
from harness.studies.loader import load_study
from harness.studies.point_run import Row
from harness.studies.store import Job, Store, jobs_of
from metrics.rundir import Summary

STUDY = """
name = "both"
measures = ["degree_mean", "delivery_ratio", "copies_per_message"]
seeds = 2
[experiment.underlay]
kind = "uniform"
hosts = 8
[experiment.workload]
warmup_s = 3
duration_s = 4
[grid]
random.degree = [2, 3]
testbed = ["simulated", "emulated"]
"""


@pytest.fixture
def jobs(tmp_path: Path) -> tuple[Job, ...]:
    file = tmp_path / "both.toml"
    file.write_text(STUDY)
    return jobs_of(load_study(file), tmp_path)


Told = Callable[[Job], str | TrellisError]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[Told], list[Job]]:
    """Let the runs of jobs end with a verdict, or fail; return the list of the jobs whose runs are made."""

    def tell(told: Told) -> list[Job]:
        jobs: list[Job] = []

        def make_run(job: Job, folder: Path, _: Path) -> Iterator[tuple[Path, Summary]]:
            jobs.append(job)
            ending = told(job)
            if isinstance(ending, TrellisError):
                raise ending
            numbers = {"degree_mean": 2 * job.seed, "delivery_ratio": 0.5, "copies_per_message": None, "hops_p50": 3}
            for verdict in ("invalid", ending):
                yield folder / verdict, Summary(verdict, (), numbers, (), "both-1", "both", job.seed, "random")

        monkeypatch.setattr(process_runs, "make_process_run", make_run)
        return jobs

    return tell


def test_runs_of_processes_are_made_once_and_no_others(
    jobs: tuple[Job, ...], made: Callable[[Told], list[Job]], tmp_path: Path
) -> None:
    runs, store = made(lambda _: "valid"), Store(tmp_path)
    assert make_process_runs((*jobs, *jobs), store, tmp_path, tmp_path / "both.toml") == 0
    assert [(job.experiment.testbed, job.at["random.degree"], job.seed) for job in runs] == [
        ("emulated", degree, seed) for degree in (2, 3) for seed in (1, 2)
    ]
    assert [store.read(job) is not None for job in jobs] == [job.experiment.testbed == "emulated" for job in jobs]
    assert make_process_runs(jobs, store, tmp_path, tmp_path / "both.toml") == 0
    assert len(runs) == 4


def test_the_numbers_of_the_last_attempt_are_the_result(
    jobs: tuple[Job, ...], made: Callable[[Told], list[Job]], tmp_path: Path
) -> None:
    runs, store = made(lambda _: "valid"), Store(tmp_path)
    make_process_runs(jobs, store, tmp_path, tmp_path / "both.toml")
    for job in runs:
        result = store.read(job)
        assert result is not None
        rows = {Row("degree_mean", 7.0, None, 2.0 * job.seed), Row("delivery_ratio", None, None, 0.5)}
        assert set(result.rows) == rows, "of the overlay at the workload's end; none that the run has not"
        assert (result.code, result.seed, result.at) == (job.code, job.seed, job.at)


@pytest.mark.parametrize(
    "ending",
    [
        "invalid",
        "suspect",
        StageError(3),
        TestbedError("namespaces", "none"),
        ExperimentError("$.underlay", "too large"),
    ],
    ids=["invalid", "suspect", "stage", "testbed", "plan"],
)
def test_a_run_without_a_valid_end_has_no_result_and_stops_no_other(
    jobs: tuple[Job, ...],
    made: Callable[[Told], list[Job]],
    ending: str | TrellisError,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = Store(tmp_path)
    runs = made(lambda job: ending if job.at["random.degree"] == 2 and job.seed == 1 else "valid")
    assert make_process_runs(jobs, store, tmp_path, tmp_path / "both.toml") == 1
    assert len(runs) == 4
    assert [store.read(job) is None for job in runs] == [True, False, False, False]
    assert "run 1 of 4 (random.degree = 2, testbed = emulated, seed = 1)" in capsys.readouterr().err
    again = made(lambda _: "valid")
    assert make_process_runs(jobs, store, tmp_path, tmp_path / "both.toml") == 0
    assert again == runs[:1]


def test_a_sweep_goes_on_only_with_all_runs_of_processes(
    made: Callable[[Told], list[Job]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "both.toml").write_text(STUDY)
    parser = sweep.argparse.ArgumentParser()
    sweep.add_arguments(parser)
    monkeypatch.setattr(sweep, "run_spark", lambda *_: pytest.fail("it went on"))
    made(lambda job: "valid" if job.seed == 2 else "suspect")
    given = parser.parse_args([str(tmp_path / "both.toml"), "--out", str(tmp_path / "out")])
    assert sweep.run(given) == 1
    assert "2 runs of processes failed or are not valid; the others are kept" in capsys.readouterr().err
    assert len(list((tmp_path / "out" / "runs").glob("*.json"))) == 2


def test_a_run_during_which_the_code_changed_has_no_result(
    jobs: tuple[Job, ...],
    made: Callable[[Told], list[Job]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its peers may have had the code of before or after."""
    store = Store(tmp_path)
    runs = made(lambda _: "valid")
    now = iter([jobs[-1].code, "other", jobs[-1].code, jobs[-1].code])
    monkeypatch.setattr(process_runs, "code_now", lambda *_: next(now))
    assert make_process_runs(jobs, store, tmp_path, tmp_path / "both.toml") == 1
    assert [store.read(job) is None for job in runs] == [False, True, False, False]
    assert "failed: the code has changed since the sweep began" in capsys.readouterr().err


def test_the_code_is_read_again(jobs: tuple[Job, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.test_code_hash import UNCACHED

    experiments = [jobs[-1].experiment]
    assert code_now(experiments) == code_of(experiments)
    monkeypatch.setattr(code_hash, "code_of_protocols", cache(UNCACHED))
    before = code_of(experiments)
    changed = {name: Module(b"", each.describes, each.imports) for name, each in code_hash.modules_here().items()}
    monkeypatch.setattr(code_hash, "modules_here", cache(lambda: changed))
    assert code_of(experiments) == before
    assert code_now(experiments) != before


def test_a_sweep_makes_no_run_of_processes_beside_another_sweep_of_its_folder(
    made: Callable[[Told], list[Job]], tmp_path: Path
) -> None:
    (tmp_path / "both.toml").write_text(STUDY)
    parser = sweep.argparse.ArgumentParser()
    sweep.add_arguments(parser)
    runs = made(lambda _: "valid")
    given = parser.parse_args([str(tmp_path / "both.toml"), "--out", str(tmp_path / "out")])
    (tmp_path / "out").mkdir()
    with exclusive(tmp_path / "out", sweep.LOG), pytest.raises(AnalysisError, match="another process works on it"):
        sweep.run(given)
    assert runs == []


RULES = {
    "run": ("seeds = 2", "seeds = 2\nrun = { newcomers_s = 1 }", "$.run: only for points that are simulated"),
    "measure": ("copies_per_message", "degrees", "$.measures[2]: 'degrees' is no headline number"),
    "remote": (
        'testbed = ["simulated", "emulated"]',
        'testbed = ["remote"]\ninventory = ["one.toml"]',
        "$.experiment.testbed: studies are simulated or run on this machine",
    ),
}


@pytest.mark.parametrize("broken", RULES)
def test_what_runs_of_processes_do_not_have_is_refused(broken: str, tmp_path: Path) -> None:
    old, new, problem = RULES[broken]
    (tmp_path / "both.toml").write_text(STUDY.replace(old, new))
    with pytest.raises(ExperimentError) as refused:
        load_study(tmp_path / "both.toml")
    assert problem in str(refused.value)
    if broken != "remote":
        (tmp_path / "both.toml").write_text(STUDY.replace(old, new).replace(', "emulated"]', "]"))
        load_study(tmp_path / "both.toml")


@pytest.mark.parametrize(
    "keys",
    ['peer.command = ["true"]', 'peer.implementation = "go-libp2p"\nprotocol = "gossipsub"'],
    ids=["own", "named"],
)
def test_programs_of_others_are_refused_as_points(keys: str, tmp_path: Path) -> None:
    study = STUDY.replace('["simulated", "emulated"]', '["emulated"]')
    section = "[experiment.underlay]"
    (tmp_path / "both.toml").write_text(study.replace(section, f"[experiment]\n{keys}\n{section}"))
    with pytest.raises(ExperimentError, match=r"\$\.experiment\.peer: peers of studies are Python peers"):
        load_study(tmp_path / "both.toml")


def test_the_code_of_processes_counts_for_their_runs_alone(
    jobs: tuple[Job, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.test_code_hash import change

    experiments = {job.experiment.testbed: job.experiment for job in jobs}
    before = {testbed: code_of([experiment]) for testbed, experiment in experiments.items()}
    change(monkeypatch, "peer.runtime.agent")
    after = {testbed: code_of([experiment]) for testbed, experiment in experiments.items()}
    assert [after[testbed] == before[testbed] for testbed in ("simulated", "emulated")] == [True, False]
    both = code_of(experiments.values())
    assert both == after["emulated"]


def test_no_run_of_processes_is_simulated_instead(jobs: tuple[Job, ...]) -> None:
    outcomes = {job.experiment.testbed: OUTCOMES.decode(perform(msgspec.json.encode(job))) for job in jobs[:4]}
    assert isinstance(outcomes["simulated"], Success)
    assert isinstance(outcomes["emulated"], Failure)
    assert outcomes["emulated"].words == 'testbed = "emulated" is not simulated'
