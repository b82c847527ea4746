"""What the benchmark of programs finds in its runs, which are made up here: costs, predictions, and runs of no use."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, astuple, replace

from benchmarks import programs
from benchmarks._calibrated_runs import AFTER, BEFORE, RUN
from benchmarks.programs import Costs, Point, Row, Used, describe, find_problem, fit, judge, list_points, with_costs
from harness.doctor.collisions import CHECKOUT
from harness.experiment.loader import decode_experiment
from harness.experiment.sections.peer import ProgramSpec
from harness.machine.calibration import Calibration
from harness.planning.plan import Prediction
from harness.planning.processors import REFERENCE_WORK_US, estimate_load, foresee
from metrics.rundir import RunDir
from metrics.rundir.documents import FAILED, Check, Summary
from tests.recorded_run import extract_run

HOSTS = 8
"""Those of the recorded run."""

PLAIN = decode_experiment({"name": "x", "protocol": "random", "underlay": {"kind": "uniform", "hosts": HOSTS}})
PROGRAM = ProgramSpec("mine", "1", "", "tcp", ("x",))
ASKED = replace(PLAIN, peer=replace(PLAIN.peer, programs=(PROGRAM,), implementation="mine", memory_mib=60.0))
COSTS = Costs(30.0, 900.0)


def used(costs: Costs, hosts: int, copies_per_s: float, work_us: float = REFERENCE_WORK_US) -> Used:
    """A run of peers that cost so much by the model of ``plan``."""
    calibration = Calibration(work_us, 0.1, True, 2)
    prediction = Prediction(50, 500.0, 100, 60.0, 7.0, copies_per_s)
    loads = (estimate_load(with_costs(ASKED, each), prediction, hosts) for each in (costs, Costs(0.0, 0.0)))
    with_peers, without = (load.processors(calibration, 1.0) for load in loads)
    everything = foresee(with_costs(ASKED, costs), prediction, hosts, calibration).processors
    return Used(ASKED, prediction, hosts, calibration, copies_per_s, with_peers - without, everything, 67.0)


FEW, MANY = used(COSTS, 5, 20.0), used(COSTS, 40, 4000.0)

costs_of_peers = st.builds(Costs, st.floats(0.1, 1000), st.floats(1, 1e5))
machines = st.floats(20, 2000)


@given(
    costs_of_peers, st.integers(2, 100), st.integers(2, 100), st.floats(1, 100), st.floats(2, 50), machines, machines
)
def test_known_costs_are_found_on_machines_of_any_speed(
    costs: Costs, hosts: int, others: int, copies: float, ratio: float, work_us: float, other_us: float
) -> None:
    few, many = used(costs, hosts, hosts * copies, work_us), used(costs, others, others * copies * ratio, other_us)
    found = fit([few, many])
    assert isinstance(found, Costs)
    assert astuple(found) == pytest.approx(astuple(costs), rel=1e-6)
    assert costs.peers(many) == pytest.approx(many.peers)


def test_differences_from_runs_are_relative() -> None:
    """Of two runs of a size, one took twice as much: 1.2 times the less is 0.2 above it, and 0.4 below the other."""
    found = fit([FEW, replace(FEW, peers=2 * FEW.peers), MANY])
    assert isinstance(found, Costs)
    assert (found.peers(FEW), found.peers(MANY)) == pytest.approx((1.2 * FEW.peers, MANY.peers))


@pytest.mark.parametrize(
    ("runs", "problem"),
    [
        ([], "0 of the fitted runs can be used, at least two are needed"),
        ([used(COSTS, 10, 20)], "1 of the fitted runs can be used, at least two are needed"),
        ([used(COSTS, 10, 20), used(COSTS, 20, 40)], "all fitted runs have as many copies per host"),
        (
            [used(COSTS, 10, 20), replace(used(COSTS, 10, 200), peers=0.01)],
            "the fitted runs give 35.2 ms/s and -1.71e+03 us: one is below 0",
        ),
    ],
)
def test_runs_that_say_too_little_give_no_costs(runs: list[Used], problem: str) -> None:
    assert fit(runs) == problem


def rows(runs: Sequence[Used | None]) -> list[Row]:
    """The last one is not fitted."""
    return [
        Row(Point("mine", 10, 1.0, number, number < len(runs)), Path("mine-10"), run, "" if run else "broken", "valid")
        for number, run in enumerate(runs, 1)
    ]


FITTED = [used(COSTS, 10, 20), used(COSTS, 10, 200, 300.0)]


def test_a_prediction_is_compared_with_a_run_that_is_not_fitted() -> None:
    check = used(COSTS, 20, 180.0, 250.0)
    result = judge(rows([*FITTED, replace(check, peers=check.peers * 2, memory_mib=80.0)]))
    assert result["costs"] == pytest.approx(asdict(COSTS))
    [found] = result["checks"]
    assert (found["peers_error"], found["peers_near"]) == (pytest.approx(-0.5), False)
    assert (found["everything_error"], found["everything_near"]) == (pytest.approx(0, abs=1e-9), True)
    assert (found["memory_mib_predicted"], found["memory_mib_near"]) == (67.0, True)


def test_without_a_run_to_compare_with_only_the_costs_are_known() -> None:
    result = judge(rows([*FITTED, None]))
    assert result["costs"] == pytest.approx(asdict(COSTS))
    assert result["problem"] == "there is no run to compare a prediction with"


def test_a_run_of_no_use_is_in_no_fit() -> None:
    wrong = used(Costs(300.0, 9.0), 10, 400.0)
    broken = Row(Point("mine", 10, 2.0, 3, True), Path("mine-10"), None, "broken", "invalid")
    kept = [*rows([*FITTED, used(COSTS, 20, 180.0)])]
    assert judge([*kept, broken])["costs"] == judge(kept)["costs"] == pytest.approx(asdict(COSTS))
    assert judge([*kept, replace(broken, used=wrong)])["costs"] != pytest.approx(asdict(COSTS), rel=0.1)


def test_each_implementation_has_runs_to_fit_and_one_to_compare_with(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text('name = "b"')
    points = list_points(["a", str(file)], 10, [1.0, 12.0], (20, 4.0))
    assert [(point.implementation, point.hosts, point.rate_per_s, point.fitted) for point in points] == [
        (name, *size) for name in ("a", str(file)) for size in ((10, 1, True), (10, 12, True), (20, 4, False))
    ]
    assert len({point.folder for point in points}) == len(points)
    words = points[-1].words
    assert words[0] == programs.EXPERIMENT and (CHECKOUT / words[0]).is_file()
    assert {f"peer.implementation={file}", "underlay.hosts=20", "workload.publish_rate_per_s=4"} <= set(words)


def test_files_of_the_same_name_share_no_runs(tmp_path: Path) -> None:
    """Nor does a file that has changed."""
    folders = set()
    for name in ("a", "b"):
        file = tmp_path / name / "mine.toml"
        file.parent.mkdir()
        file.write_text(f"name = {name}")
        folders.add(list_points([str(file)], 10, [1.0], (20, 4.0))[0].folder)
        file.write_text("name = 'c'" + name)
        folders.add(list_points([str(file)], 10, [1.0], (20, 4.0))[0].folder)
    assert len(folders) == 4


# ------------------------------------------------------------------------------------------- runs in folders


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_run(tmp_path_factory.mktemp("recorded"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def write_run(
    recorded: Path, place: Path, peers: float = 0.5, frames_per_s: float = 30.0, work_us: float = 200.0
) -> Path:
    """A copy of the recorded run whose peers kept so many processors busy, and its analysis."""
    run_dir = place / RUN
    run_dir.mkdir(parents=True)
    for path in recorded.iterdir():
        if path.suffix in (".json", ".jsonl", ".toml"):
            shutil.copy(path, run_dir)
    plan = json.loads((run_dir / "plan.json").read_text())
    edit(run_dir / "plan.json", prediction=plan["prediction"] | {"frames_per_s": frames_per_s})
    resources = {"peers_cpu_s": peers * plan["experiment"]["workload"]["duration_s"], "peers_pss_mib": 80.0}
    edit(run_dir / "manifest.json", resources=resources)
    summary = Summary("valid", (), {"delivery_ratio": 1.0}, (), "x", "x", 1, "random")
    (run_dir / "summary.json").write_bytes(msgspec.json.encode(summary))
    for name, factor in ((BEFORE, 0.9), (AFTER, 1.1)):
        (place / name).write_bytes(msgspec.json.encode(Calibration(work_us * factor, 0.1, True, 2)))
    return run_dir


def measured(recorded: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Row:
    monkeypatch.setattr(programs, "make_run", lambda _words, place: place)
    return programs.measure(Point("mine", HOSTS, 5.0, 1, True), folder)


PLACE = Point("mine", HOSTS, 5.0, 1, True).folder


def test_what_a_run_used_is_read(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = write_run(recorded, tmp_path / PLACE, peers=0.6, frames_per_s=30.0, work_us=240.0)
    row = measured(recorded, tmp_path, monkeypatch)
    assert row.used is not None, row.problem
    published = sum(action["action"] == "publish" for action in RunDir(run_dir).schedule())
    busy = [line["cpu_busy_ratio"] for line in RunDir(run_dir).lines("pressure.jsonl")]
    found = row.used
    assert (found.hosts, found.peers, found.memory_mib) == (HOSTS, pytest.approx(0.6), 10.0)
    assert found.calibration.work_us == pytest.approx(240)
    assert found.copies_per_s == pytest.approx(30 * published / 50)
    assert 2 * min(busy) <= found.everything <= 2 * max(busy)


def break_manifest(run_dir: Path, **changes: Any) -> None:
    edit(run_dir / "manifest.json", **changes)


def break_states(run_dir: Path) -> None:
    [first, *others] = json.loads((run_dir / "manifest.json").read_text())["final_states"]
    break_manifest(run_dir, final_states=[first | {"status": 3}, *others])


def break_phases(run_dir: Path) -> None:
    phases = json.loads((run_dir / "manifest.json").read_text())["phases"]
    break_manifest(run_dir, phases=[phase for phase in phases if phase["name"] not in ("workload", "cooldown")])


def break_schedule(run_dir: Path) -> None:
    check = Check("schedule_executed", 50, 3, 3, 0, "messages", "invalid", outcome=FAILED)
    edit(run_dir / "summary.json", checks=[msgspec.to_builtins(check)])


def break_speed(run_dir: Path) -> None:
    edit(run_dir.parent / AFTER, work_us=300.0)


def break_machine(run_dir: Path) -> None:
    path = run_dir / "pressure.jsonl"
    lines = [json.loads(line) | {"cpu_busy_ratio": 0.95} for line in path.read_text().splitlines()]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize(
    ("break_run", "problem"),
    [
        (break_states, "peer-0 exited with status 3"),
        (break_phases, "it was cut short"),
        (lambda run_dir: break_manifest(run_dir, resources={}), "it was cut short"),
        (
            lambda run_dir: break_manifest(run_dir, problems=[["invalid", "lost during the run: the agent"]]),
            "lost during the run: the agent",
        ),
        (break_schedule, "not all messages were published"),
        (lambda run_dir: edit(run_dir / "summary.json", headline={"delivery_ratio": 0.5}), "50% of the deliveries"),
        (lambda run_dir: edit(run_dir / "summary.json", headline={}), "0% of the deliveries"),
        (break_speed, "the machine changed: 180 us of work before, 300 us after"),
        (break_machine, "95% of the machine was busy"),
    ],
)
def test_a_run_that_failed_is_not_used(
    break_run: Any, problem: str, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = write_run(recorded, tmp_path / PLACE)
    assert find_problem(RunDir(run_dir)) == ""
    break_run(run_dir)
    row = measured(recorded, tmp_path, monkeypatch)
    assert row.used is None
    assert row.problem.startswith(problem)


def test_a_verdict_of_load_is_no_reason(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = write_run(recorded, tmp_path / PLACE)
    edit(run_dir / "summary.json", verdict="invalid", reasons=["plane lateness"])
    row = measured(recorded, tmp_path, monkeypatch)
    assert row.used is not None and row.verdict == "invalid"


IMPLEMENTATION = 'version = "1"\nabout = "x"\ncommand = ["x"]\nmemory_mib = 3\nstart_cpu_s = 1\n'


@pytest.mark.parametrize("broken", [None, 12.0])
def test_the_command_prints_the_lines_for_the_file(
    broken: float | None,
    recorded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(IMPLEMENTATION)
    made = []

    def make_run(words: Sequence[str], place: Path) -> Path:
        rate = float(next(word for word in words if "publish_rate" in word).partition("=")[2])
        made.append(rate)
        if rate == broken:
            raise RuntimeError("no run")
        frames_per_s = 40 * rate
        published = sum(line.count('"publish"') for line in (recorded / "schedule.jsonl").open())
        # The copies are those of the messages that the recorded run published; it asks for 50.
        peers = (HOSTS * COSTS.idle_cpu_ms_per_s * 1e3 + frames_per_s * published / 50 * COSTS.copy_cpu_us) / 1e6
        write_run(recorded, place, peers, frames_per_s)
        return place

    monkeypatch.setattr(programs, "make_run", make_run)
    status = programs.main([str(file), "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert made == [1.0, 12.0, 4.0]
    if broken:
        assert status == 1
        assert re.search(rf"not used: no run \({tmp_path / 'out'}/mine-[0-9a-f]{{8}}-10-12-2\)", printed)
        assert "idle_cpu_ms_per_s" not in printed
        return
    assert status == 0
    assert f"# {file}\nidle_cpu_ms_per_s = 30\ncopy_cpu_us = 900\n# peers: " in printed
    assert [line.split()[8] for line in printed.splitlines()[1:4]] == ["fitted", "fitted", "check"]


def test_an_implementation_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert programs.main(["js-libp2p"]) == 2
    assert "js-libp2p has not been fetched; try: trellis fetch js-libp2p" in capsys.readouterr().err
    assert programs.main(["no-such"]) == 2


def test_a_run_that_was_not_made_has_a_line() -> None:
    [_, line, why] = describe(rows([None]), {})
    assert line.split() == ["10", "1", "-", "-", "-", "-", "-", "valid", "not", "mine"]
    assert why.strip() == "not used: broken (mine-10)"
