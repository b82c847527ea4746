"""Recorded runs that are made again: which are drawn, and what counts as another number."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.cli import main
from harness.studies.form import Study
from harness.studies.loader import load_study
from harness.studies.recheck import choose_runs, draw_runs, make_again
from harness.studies.record import RECORD_FILE, Record, read_record

STUDY = """
name = "small"
seeds = 3
measures = ["degree_mean", "diameter", "degrees"]
[experiment.underlay]
kind = "uniform"
hosts = 8
[run]
length_s = 4
snapshots_s = [2, 4]
[grid]
"random.degree" = [2, 3]
[[variants]]
name = "one"
[[variants]]
name = "the same"
set = { "underlay.hosts" = 8 }
[[figure]]
name = "figure"
title = "Diameters"
x = "at_s"
y = ["diameter"]
series = ["random.degree", "variant"]
[[figure]]
name = "degrees"
title = "Degrees"
kind = "cdf"
x = "degree"
y = ["degrees"]
series = ["random.degree", "variant"]
[[table]]
name = "table"
title = "Degrees"
rows = ["measure", "variant"]
columns = "random.degree"
measures = ["degree_mean"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study and its record."""
    path = tmp_path_factory.mktemp("recheck")
    (path / "small.toml").write_text(STUDY)
    assert main(["sweep", str(path / "small.toml"), "--master", "here", "--out", str(path / "out")]) == 0
    return path


@pytest.fixture(scope="module")
def study(folder: Path) -> Study:
    return load_study(folder / "small.toml")


@pytest.fixture(scope="module")
def record(folder: Path, study: Study) -> Record:
    return read_record(folder / "out" / RECORD_FILE, study)


@given(cpu_s=st.floats(0, 30), draw=st.integers(0, 9))
def test_different_runs_are_drawn_within_the_limit(
    folder: Path, study: Study, record: Record, cpu_s: float, draw: int
) -> None:
    """None is left out that would fit after the others."""
    costly = replace(
        record, results=tuple(replace(each, cpu_s=float(1 + number)) for number, each in enumerate(record.results))
    )
    chosen = choose_runs(study, costly, folder, cpu_s=cpu_s, draw=draw)
    assert chosen == choose_runs(study, costly, folder, cpu_s=cpu_s, draw=draw)
    keys = [each.job.key for each in chosen]
    assert len(set(keys)) == len(keys)
    assert all((each.job.at, each.job.seed) == (each.recorded.at, each.recorded.seed) for each in chosen)
    left = cpu_s - sum(each.recorded.cpu_s for each in chosen)
    every = choose_runs(study, costly, folder, cpu_s=1e9, draw=draw)
    assert left >= 0 and len(every) == 6
    assert all(each.recorded.cpu_s > left for each in every if each.job.key not in keys)


def test_another_draw_gives_other_runs(folder: Path, study: Study, record: Record) -> None:
    """Of six runs that take a second each, two."""
    even = replace(record, results=tuple(replace(each, cpu_s=1.0) for each in record.results))
    draws = [choose_runs(study, even, folder, cpu_s=2.5, draw=draw) for draw in range(9)]
    assert {len(draw) for draw in draws} == {2}
    assert len({frozenset(each.job.key for each in draw) for draw in draws}) > 1


def test_a_record_has_the_numbers_of_its_runs_at_all_moments_and_counts(
    folder: Path, study: Study, record: Record
) -> None:
    compared = list(make_again(study, draw_runs(folder / "out" / RECORD_FILE, study, folder)))
    assert [each.differences for each in compared] == [()] * 6
    assert all(each.numbers > 5 for each in compared), "moments and counts are compared, too"


@pytest.mark.parametrize("kind", ["values", "moments", "counts"])
def test_a_number_that_differs_is_named_with_what_was_recorded(
    folder: Path, study: Study, tmp_path: Path, kind: str
) -> None:
    content = json.loads((folder / "out" / RECORD_FILE).read_bytes())
    title = {"values": "degree_mean", "moments": "diameter", "counts": "degrees"}[kind]
    for point in content["points"][::2]:  # the same run in both variants
        assert point["at"]["random.degree"] == 2
        column = point[kind][title]
        column["seeds"][1] = 77.5 if kind == "values" else [77.5, *column["seeds"][1][1:]]
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content))
    [differing] = [each for each in make_again(study, draw_runs(changed, study, folder)) if each.differences]
    assert (differing.at["random.degree"], differing.seed) == (2, 2)
    [difference] = differing.differences
    where = title if kind == "values" else f"{title} at {column['at'][0]:g}"
    assert difference.startswith(f"{where}: recorded 77.5, now ")
    assert difference in str(differing)


def test_a_number_that_the_run_does_not_have_differs(folder: Path, study: Study, tmp_path: Path) -> None:
    content = json.loads((folder / "out" / RECORD_FILE).read_bytes())
    for point in content["points"]:
        moments = point["moments"]["diameter"]
        moments["at"].insert(0, 0.5)
        for numbers in moments["seeds"]:
            numbers.insert(0, 3)
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content))
    compared = list(make_again(study, draw_runs(changed, study, folder)))
    assert [each.differences for each in compared] == [("diameter at 0.5: recorded 3, now none",)] * 6


def test_a_number_that_the_recorded_run_did_not_have_differs(folder: Path, study: Study, tmp_path: Path) -> None:
    """A measure that the record has of no run is not compared."""
    content = json.loads((folder / "out" / RECORD_FILE).read_bytes())
    for point in content["points"]:
        del point["values"]["degree_mean"]
        point["values"]["diameter"]["seeds"][1] = None
        point["moments"]["diameter"]["seeds"][1] = [None for _ in point["moments"]["diameter"]["at"]]
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content))
    compared = list(make_again(study, draw_runs(changed, study, folder)))
    assert {each.seed for each in compared if each.differences} == {2}
    for each in compared:
        assert all(difference.startswith("diameter") for difference in each.differences)
        assert all(": recorded none, now " in difference for difference in each.differences)


def test_a_record_without_any_number_of_a_run_is_not_equal_to_it(folder: Path, study: Study, tmp_path: Path) -> None:
    content = json.loads((folder / "out" / RECORD_FILE).read_bytes())
    for point in content["points"]:
        point["values"] = {}
        point.pop("moments"), point.pop("counts")
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content))
    compared = list(make_again(study, draw_runs(changed, study, folder)))
    assert {(each.numbers, each.differences) for each in compared} == {(0, ("the record has none of them",))}


def test_the_command_says_how_many_runs_have_the_recorded_numbers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["sweep", str(folder / "small.toml"), "--recheck"]
    path = folder / "out" / RECORD_FILE
    assert main([*argv, str(path)]) == 0
    said = capsys.readouterr().out
    assert said.endswith("6 of 6 runs have the recorded numbers; the record has 6 runs\n")
    assert said.count(" numbers are equal") == 6
    content = json.loads(path.read_bytes())
    for point in content["points"]:
        point["values"]["degree_mean"]["seeds"][0] = 9.5
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(content))
    assert main([*argv, str(changed)]) == 1
    assert "4 of 6 runs have the recorded numbers" in capsys.readouterr().out
    assert main([*argv, str(tmp_path / "none.json")]) == 2
    assert "none.json: No such file" in capsys.readouterr().err
    assert main([*argv, str(path), "--minutes", "-1"]) == 2
    assert "no simulated run took at most -1 minutes" in capsys.readouterr().err
    assert main([*argv, str(path), "--any-code"]) == 2
    assert "takes neither" in capsys.readouterr().err
    assert main(["sweep", str(folder / "small.toml"), "--minutes", "1"]) == 2
    assert "need --recheck" in capsys.readouterr().err
    changed.write_text(json.dumps({**content, "experiments": "other"}))
    assert main([*argv, str(changed)]) == 2
    assert "the experiments of small have changed since" in capsys.readouterr().err
