"""Runs that stalls of the host spoiled are repeated, and no others."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness import cli
from harness.commands import run as command
from harness.errors import ExperimentError
from harness.stages.analysis import AnalysisError, UnreadableRunError
from harness.stages.prepared import Prepared
from harness.stages.repetition import is_spoiled_by_host
from metrics.rundir import Attempt, Check, RunDir, Summary
from metrics.rundir.files import ATTEMPT_FILE, MANIFEST_FILE

LATE = Check("wire_delay", 1000, 1, 7.0, 0.5, "ms", "invalid")
HOSTS = msgspec.structs.replace(LATE, late=40, explained=35, allowed=10)
OWN = msgspec.structs.replace(LATE, late=40, explained=20, allowed=10)
PASSED = Check("steal", 30, 0, 0.0, 0.1, "ratio", "suspect")
LOST = Check("frames_kept", 100, 1, 1.0, 0.0, "frames", "suspect")

EXPERIMENT = """
name = "tiny"
protocol = "random"
[underlay]
kind = "uniform"
[workload]
duration_s = 5
"""


def summary(*checks: Check, reasons: int | None = None, attempt: Attempt | None = None) -> Summary:
    failed = sum(bool(check.failed) for check in checks) if reasons is None else reasons
    verdict = "invalid" if failed else "valid"
    said = tuple(f"reason {number}." for number in range(failed))
    return Summary(verdict, said, {}, tuple(checks), "tiny-1", "tiny", 1, "random", attempt)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (summary(HOSTS, PASSED), True),
        (summary(HOSTS, HOSTS), True),
        (summary(PASSED), False),
        (summary(OWN), False),
        (summary(HOSTS, OWN), False),
        (summary(HOSTS, LOST), False),
        (summary(HOSTS, reasons=2), False),
        (summary(reasons=1), False),
    ],
    ids=["one", "two", "valid", "own fault", "both", "no stall can cause it", "another reason", "only another reason"],
)
def test_a_run_is_spoiled_by_the_host_if_nothing_else_keeps_it_from_being_valid(found: Summary, expected: bool) -> None:
    assert is_spoiled_by_host(found) == expected


Runs = Callable[..., int]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Runs, list[Path]]:
    """``trellis run`` whose runs end as they are told to, and the directories of these."""
    made: list[Path] = []
    outcomes: list[tuple[Check, ...]] = []
    (tmp_path / "tiny.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)

    def stage(_: str, run_dir: Path, *__: object) -> int:
        made.append(run_dir)
        return 0

    @contextmanager
    def prepared(run_dir: Path, *_: object, page: bool) -> Iterator[Prepared]:
        yield Prepared(lambda: summary(*outcomes.pop(0), attempt=RunDir(run_dir).attempt))

    monkeypatch.setattr(command, "perform_stage", stage)
    monkeypatch.setattr(command, "prepared", prepared)
    monkeypatch.setattr(RunDir, "manifest", SimpleNamespace(machine=""))

    def make_plan(experiment: Any, *_: object, **__: object) -> Any:
        return SimpleNamespace(plan=SimpleNamespace(experiment=experiment, prediction=None, placement=()))

    monkeypatch.setattr(command, "make_plan", make_plan)
    monkeypatch.setattr(command, "foresee_here", lambda *_: "not predicted")
    monkeypatch.setattr(command, "remarks_on", lambda *_: [])

    def write_plan(_: object, run_dir: Path) -> None:
        run_dir.mkdir(parents=True)
        (run_dir / "plan.json").write_text("{}")

    monkeypatch.setattr(command, "write_plan", write_plan)

    def call(told: list[tuple[Check, ...]], *words: str) -> int:
        outcomes[:] = told
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        code = command.run(parser.parse_args(["tiny.toml", *words]))
        assert not outcomes
        return code

    return call, made


@pytest.mark.parametrize(
    ("error", "complete", "hinted"),
    [
        (AnalysisError("here: status 1: no memory"), True, True),
        (AnalysisError("here: another process works on it"), False, False),
        (UnreadableRunError("here/plan.json: damaged"), True, False),
    ],
    ids=["failed", "there is no run", "damaged"],
)
def test_only_an_analysis_that_may_succeed_is_proposed(
    runs: tuple[Runs, list[Path]], monkeypatch: pytest.MonkeyPatch, error: AnalysisError, complete: bool, hinted: bool
) -> None:
    @contextmanager
    def prepared(run_dir: Path, *_: object, page: bool) -> Iterator[Prepared]:
        if complete:
            (run_dir / MANIFEST_FILE).touch()
        raise error
        yield

    monkeypatch.setattr(command, "prepared", prepared)
    call, _ = runs
    with pytest.raises(type(error)) as raised:
        call([], "--out", "here")
    here = Path("here").absolute()
    hint = f"; {here} is complete but not analysed; try: trellis report {here}"
    assert str(raised.value) == str(error) + (hint if hinted else "")


def test_a_spoiled_run_is_repeated_into_a_new_directory_until_it_is_valid(runs: tuple[Runs, list[Path]]) -> None:
    call, made = runs
    assert call([(HOSTS,), (HOSTS, PASSED), (PASSED,)], "--retry-host-stalls", "5", "--out", "here") == 0
    assert [path.name for path in made] == ["here", "here-attempt2", "here-attempt3"]
    assert all(path.is_dir() for path in made), "failed directories are kept"
    assert not (made[0] / ATTEMPT_FILE).exists()
    attempts = [msgspec.json.decode((path / ATTEMPT_FILE).read_bytes(), type=Attempt) for path in made[1:]]
    assert attempts == [Attempt(2, str(made[0]), ("reason 0.",)), Attempt(3, str(made[1]), ("reason 0.",))]


def test_runs_are_repeated_no_more_often_than_asked(runs: tuple[Runs, list[Path]]) -> None:
    call, made = runs
    assert call([(HOSTS,), (HOSTS,)], "--retry-host-stalls", "1") == call([(HOSTS,)]) != 0
    assert len(set(made)) == 3


def test_a_run_with_a_reason_of_its_own_is_not_repeated(runs: tuple[Runs, list[Path]]) -> None:
    call, made = runs
    assert call([(HOSTS, LOST)], "--retry-host-stalls", "3") != 0
    assert len(made) == 1


def test_every_seed_has_its_own_attempts_and_the_last_one_counts(
    runs: tuple[Runs, list[Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    call, made = runs
    assert call([(HOSTS,), (PASSED,), (PASSED,)], "--retry-host-stalls", "1", "--repeat", "2") == 0
    assert [(path / ATTEMPT_FILE).exists() for path in made] == [False, True, False]
    said = capsys.readouterr()
    assert f"attempt 2, a repetition of {made[0]}" in said.out
    assert "attempt 2 follows" in said.err


def test_a_negative_number_of_repetitions_is_refused(runs: tuple[Runs, list[Path]]) -> None:
    with pytest.raises(ExperimentError, match="--retry-host-stalls"):
        runs[0]([], "--retry-host-stalls", "-1")


def test_the_command_line_knows_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    assert "--retry-host-stalls N" in capsys.readouterr().out
