"""The predicted processors: what the model adds up, and what `plan` prints of it."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.cli import main
from harness.commands import run
from harness.errors import ExperimentError
from harness.experiment.form import Experiment
from harness.experiment.loader import decode_experiment, load_experiment
from harness.experiment.sections.peer import ProgramSpec
from harness.machine.calibration import Calibration
from harness.planning import make_plan, processors, read_plan, remarks_on, write_plan
from harness.planning.dilation import DILATIONS, least_dilation
from harness.planning.plan import PlannedRun, Prediction
from harness.planning.processors import SHARE_LIMIT, Load, Outlook, estimate_load, find_unknown

REFERENCE = Calibration(processors.REFERENCE_WORK_US, 0.1, True, 2)
FILE = 'name = "x"\nprotocol = "random"\nunderlay = { kind = "uniform", hosts = 20 }\n'


def experiment(**keys: Any) -> Experiment:
    return decode_experiment({"name": "x", "protocol": "random", "underlay": {"kind": "uniform", "hosts": 20}, **keys})


def predicted(frames_per_s: float | None) -> Prediction:
    return Prediction(50, 500.0, 100, 60.0, 7.0, frames_per_s)


def load(hosts: int = 20, frames_per_s: float = 300.0, **keys: Any) -> Load:
    return estimate_load(experiment(**keys), predicted(frames_per_s), hosts)


def program(name: str, idle: float | None, copy: float | None) -> ProgramSpec:
    return ProgramSpec(name, "1", "", "tcp", ("x",), idle_cpu_ms_per_s=idle, copy_cpu_us=copy)


def with_programs(*programs: ProgramSpec, **peer: Any) -> Experiment:
    plain = experiment()
    return replace(plain, peer=replace(plain.peer, programs=programs, command=("x",), events="lines", **peer))


hosts = st.integers(2, 1000)
rates = st.floats(0, 1e5)
dilations = st.floats(1, 1000)


@given(hosts, hosts, rates, rates)
def test_more_hosts_and_more_frames_never_need_less(some: int, others: int, slow: float, fast: float) -> None:
    few, many = sorted((some, others))
    least, most = sorted((slow, fast))
    assert sum(load(few, least)) <= sum(load(many, least)) <= sum(load(many, most))
    if few < many:
        assert load(few, least).fixed < load(many, least).fixed


@given(rates, dilations, dilations, st.floats(1, 1e4))
def test_dilation_takes_frames_off_a_second_and_a_slow_machine_adds_to_all(
    frames_per_s: float, one: float, other: float, work_us: float
) -> None:
    needed = load(frames_per_s=frames_per_s)
    true, slow = sorted((one, other))
    assert needed.processors(REFERENCE, slow) <= needed.processors(REFERENCE, true)
    assert needed.processors(REFERENCE, slow) >= needed.fixed
    machine = replace(REFERENCE, work_us=work_us)
    factor = work_us / REFERENCE.work_us
    assert needed.processors(machine, true) == pytest.approx(needed.processors(REFERENCE, true) * factor)


def test_a_dilated_plan_has_the_load_of_its_virtual_second() -> None:
    """The frames that a plan predicts are per real second."""
    slow = estimate_load(experiment(time_dilation=4), predicted(75.0), 20)
    assert slow == pytest.approx(load(frames_per_s=300.0))


def test_the_constants_are_added_up() -> None:
    fixed_ms = processors.RUN_CPU_MS + 20 * (processors.HOST_CPU_MS + processors.PEER_CPU_MS)
    frame_us = processors.PLANE_COPY_US + processors.PEER_COPY_US
    assert load() == pytest.approx((fixed_ms / 1e3, 300 * frame_us / 1e6))


@given(st.integers(1, 100), st.integers(1, 100))
def test_peers_that_share_processes_need_less(one: int, other: int) -> None:
    few, many = (load(100, peer={"per_process": each}) for each in sorted((one, other)))
    assert many.fixed <= few.fixed and many.frames <= few.frames
    assert many.frames > 300 * processors.PLANE_COPY_US / 1e6


def test_programs_need_what_their_files_say() -> None:
    plain = load()
    found = estimate_load(with_programs(program("a", 30.0, 900.0), implementation="a"), predicted(300.0), 20)
    assert found.fixed - plain.fixed == pytest.approx(20 * (30.0 - processors.PEER_CPU_MS) / 1e3)
    assert found.frames - plain.frames == pytest.approx(300 * (900.0 - processors.PEER_COPY_US) / 1e6)


@pytest.mark.parametrize(
    ("asked", "frames_per_s", "reason"),
    [
        (experiment(), 300.0, ""),
        (experiment(), None, "the number of frames is not known"),
        (experiment(plane="kernel"), 300.0, 'there is a model of plane = "userspace" only'),
        (experiment(testbed="simulated"), 300.0, 'there is a model of plane = "userspace" only'),
        (with_programs(program("a", 30.0, 900.0)), 300.0, ""),
        (with_programs(program("a", 30.0, None)), 300.0, "the file of a does not say what a peer needs"),
        (
            with_programs(program("b", None, 1.0), program("a", None, None), program("c", 0.0, 0.0)),
            300.0,
            "the file of a, b does not say what a peer needs",
        ),
        (with_programs(), 300.0, "it is not known what the programs need"),
    ],
)
def test_what_is_not_known_is_not_predicted(asked: Experiment, frames_per_s: float | None, reason: str) -> None:
    assert find_unknown(asked, predicted(frames_per_s)) == reason


def outlook(fixed: float, frames: float, late_ms: float = 0.1, dilation: float = 1.0) -> Outlook:
    return Outlook(Load(fixed, frames), replace(REFERENCE, late_ms=late_ms), dilation, late_limit_ms=0.5)


loads = st.floats(0, 10)


@given(loads, st.floats(1e-6, 10), st.floats(1, 20))
def test_at_the_largest_rate_as_many_processors_are_busy_as_fit(fixed: float, frames: float, dilation: float) -> None:
    here = outlook(fixed, frames, dilation=dilation)
    rate = here.largest_rate
    least = replace(here, load=Load(fixed, 0.0))
    assert here.is_carried == (rate >= 1) or rate == pytest.approx(1)
    assert (rate > 0) == (least.processors < SHARE_LIMIT * 2)
    if rate > 0:
        assert replace(here, load=Load(fixed, frames * rate)).processors == pytest.approx(SHARE_LIMIT * 2)


def test_without_frames_any_rate_is_carried_or_none() -> None:
    assert outlook(0.1, 0.0).largest_rate == math.inf
    assert outlook(10.0, 0.0).largest_rate == 0


def test_a_run_fits_that_is_carried_on_time() -> None:
    assert outlook(0.1, 0.1).fits
    assert not outlook(0.1, 1.0).is_carried and outlook(0.1, 1.0, dilation=3).fits
    assert not outlook(0.1, 0.1, late_ms=0.9).is_on_time and outlook(0.1, 0.1, late_ms=0.9, dilation=2).fits


@given(loads, loads, st.floats(0, 20))
def test_the_smallest_dilation_that_fits_is_chosen(fixed: float, frames: float, late_ms: float) -> None:
    here = outlook(fixed, frames, late_ms)
    least = least_dilation(here)
    assert [each for each in DILATIONS if here.dilated(each).fits] == [
        each for each in DILATIONS if least is not None and each >= least
    ]


def test_auto_is_a_number_in_the_plan(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(dilation: str, *overrides: str, here: bool = True) -> PlannedRun:
        words = [f"time_dilation={dilation}", "workload.publish_rate_per_s=200", *overrides]
        return make_plan(load_experiment(file, words), file, words, here=here)

    calibrated(monkeypatch, REFERENCE)
    chosen = planned("auto")
    dilation = chosen.plan.experiment.dilation
    given_one = planned(f"{dilation:g}")
    assert dilation > 1 and chosen.plan == given_one.plan
    assert read_plan(_written(chosen, tmp_path)).plan.experiment.time_dilation == dilation
    [said] = (remark for remark in remarks_on(chosen) if "auto" in remark)
    assert re.fullmatch(
        r'time_dilation = "auto" is [0-9.]+: 0\.\d+ of 2 processors busy, and [0-9.]+ at true speed', said
    )
    assert not any("auto" in remark for remark in remarks_on(given_one))
    assert planned("auto", "testbed=simulated").plan == planned("1", "testbed=simulated").plan
    with pytest.raises(
        ExperimentError, match=r"time_dilation=auto: expected a number: the run is made on another machine"
    ):
        planned("auto", here=False)
    calibrated(monkeypatch, None)
    with pytest.raises(ExperimentError, match=r"expected a number: this machine was not calibrated"):
        planned("auto")
    assert planned(f"{dilation:g}").plan == given_one.plan
    calibrated(monkeypatch, replace(REFERENCE, work_us=100 * REFERENCE.work_us))
    with pytest.raises(ExperimentError, match=r"no dilation fits: with 20, \d+ of 2 processors busy, and "):
        planned("auto")


def _written(planned: PlannedRun, folder: Path) -> Path:
    write_plan(planned, folder / "run")
    return folder / "run"


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["testbed=remote", "inventory=lab.toml"], 'expected 1 with testbed = "remote"'),
        (["peer.command=['x']", "peer.events=gossipsub-interop"], "have their own clocks"),
    ],
)
def test_auto_is_refused_where_a_run_cannot_be_slowed_down(file: Path, overrides: list[str], problem: str) -> None:
    with pytest.raises(ExperimentError, match=problem):
        load_experiment(file, ["time_dilation=auto", *overrides])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(FILE)
    return path


def processors_line(file: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["plan", str(file), *words]) == 0
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("processors ")]


def calibrated(monkeypatch: pytest.MonkeyPatch, found: Calibration | None) -> None:
    monkeypatch.setattr(processors, "calibrate", lambda: found)


def test_plan_prints_the_processors(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(monkeypatch, Calibration(120.0, 0.25, True, 2))
    [line] = processors_line(file, capsys)
    assert "of 2 busy during the workload (calibrated: 120 us of work, wake-ups 0.25 ms late at p99)" in line
    calibrated(monkeypatch, None)
    assert processors_line(file, capsys) == ["processors   not predicted: this machine was not calibrated"]


def test_a_simulated_run_has_no_processors(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(monkeypatch, REFERENCE)
    assert processors_line(file, capsys, "--testbed", "simulated") == []


BUSY = r"remark +likely not valid here: [0-9.]+ of 2 processors busy, of at most 0.6; "
LATE = r"remark +likely not valid here: processes wake 0.8 ms late at p99, of at most 0.5"
SLOW = replace(REFERENCE, work_us=30 * REFERENCE.work_us, late_ms=0.8)


@pytest.mark.parametrize(
    ("found", "rate", "remarks"),
    [
        (REFERENCE, 2, []),
        (REFERENCE, 200, [BUSY + r"[0-9.]+ messages/s would fit"]),
        (SLOW, 2, [BUSY + r"no rate fits", LATE]),
    ],
)
def test_plan_remarks_on_what_does_not_fit_here(
    found: Calibration,
    rate: int,
    remarks: list[str],
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calibrated(monkeypatch, found)
    assert main(["plan", str(file), "--set", f"workload.publish_rate_per_s={rate}"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "likely" in line]
    assert len(lines) == len(remarks)
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(remarks, lines, strict=True))


@pytest.mark.parametrize(("rate", "per_process", "recommends"), [(2, 1, False), (200, 1, True), (200, 25, False)])
def test_a_plan_that_does_not_fit_recommends_that_peers_share_processes(
    rate: int,
    per_process: int,
    *,
    recommends: bool,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the processors that the plan of such a run predicts."""
    calibrated(monkeypatch, REFERENCE)
    argv = ["plan", str(file), "--set", f"workload.publish_rate_per_s={rate}", "--set"]
    assert main([*argv, f"peer.per_process={per_process}"]) == 0
    found = re.findall(
        r"peer.per_process = 25 would keep ([0-9.]+) processors busy, of at most 0.6", capsys.readouterr().out
    )
    assert main([*argv, "peer.per_process=25"]) == 0
    shared = re.findall(r"processors +([0-9.]+) of 2 busy during", capsys.readouterr().out)
    assert found == (shared if recommends else [])


def test_nothing_is_recommended_that_changes_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a node misbehaves, each has a process of its own."""
    calibrated(monkeypatch, REFERENCE)
    overrides = ["workload.publish_rate_per_s=200", "adversary.kind=dropper", "adversary.nodes=[3]"]
    assert main(["plan", str(file), *(word for each in overrides for word in ("--set", each))]) == 0
    printed = capsys.readouterr().out
    assert "likely not valid here" in printed and "peer.per_process" not in printed


def test_run_remarks_on_it_if_the_run_is_made_here(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated(monkeypatch, SLOW)
    planned = make_plan(load_experiment(file), file)
    printed: set[str] = set()
    run.print_remarks(planned, printed, here=False)
    assert capsys.readouterr().err == ""
    run.print_remarks(planned, printed, here=True)
    assert capsys.readouterr().err.count("remark: likely not valid here: ") == 2
    run.print_remarks(planned, printed, here=True)
    assert capsys.readouterr().err == "", "another seed"


def test_a_calibration_changes_no_plan(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = []
    for work_us in (20.0, 2000.0):
        calibrated(monkeypatch, Calibration(work_us, 0.1, True, 2))
        assert main(["plan", str(file), "--json"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
