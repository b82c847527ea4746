"""The command that compares runs: its groups, what it prints, and its exit statuses."""

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from harness import cli
from metrics.comparison.differences import compare
from metrics.comparison.groups import Group, group_runs, own_settings
from metrics.comparison.rows import DeliveryRows
from metrics.intervals import (
    Difference,
)
from metrics.measures.deliveries import DELIVERIES
from metrics.measures.registry import HEADLINE
from metrics.report.comparison import degree_figure, delay_figure, describe_cell
from metrics.rundir import RunDir
from metrics.totals import write_totals
from tests.compared_runs import headline_runs, make_rows
from tests.fabricate import Fabrication
from tests.fabricated_totals import make_totals


@pytest.fixture(scope="module")
def template_run(tmp_path_factory) -> Path:
    return Fabrication(seed=1, messages=4).write(tmp_path_factory.mktemp("comparison") / "run")


class Runs:
    """Makes analysed runs with given settings and random delays."""

    def __init__(self, template_run: Path, folder: Path) -> None:
        self.template_run, self.folder = template_run, folder

    def make(self, seed: int, factor: float = 1.0, revision: str = "a", verdict: str = "valid", **settings) -> str:
        run_dir = self.folder / f"{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.template_run, run_dir)
        plan, manifest = (json.loads((run_dir / f"{name}.json").read_text()) for name in ("plan", "manifest"))
        plan["seed"] = plan["experiment"]["seed"] = seed
        plan["experiment"] |= settings
        manifest |= {"versions": {"trellis revision": revision}, "testbed": settings.get("testbed", "emulated")}
        rows = make_rows(np.random.default_rng([seed, len(run_dir.name), int(factor * 100)]), 120, factor)
        tables = run_dir / "tables"
        tables.mkdir()
        pq.write_table(rows.deliveries, tables / "deliveries.parquet")
        numbers = {name: value for name, value in DELIVERIES.numbers(rows.facts).items() if name in HEADLINE}
        summary = {"verdict": verdict, "reasons": [], "headline": numbers | {"diameter": 3}, "checks": []}
        summary |= {"run_id": "", "name": "fabricated", "seed": seed, "protocol": plan["experiment"]["protocol"]}
        for name, document in {"plan": plan, "manifest": manifest, "summary": summary}.items():
            (run_dir / f"{name}.json").write_text(json.dumps(document))
        columns = {"publish_ns": 0, "direct_delay_ms": 1.0, "topic": 0, "copies": 1}
        write_totals(RunDir(run_dir), make_totals(0, rows.deliveries.to_pandas().assign(**columns)))
        return str(run_dir)


@pytest.fixture
def runs(template_run: Path, tmp_path: Path, monkeypatch) -> Runs:
    folder = tmp_path / "runs"
    folder.mkdir()
    # the tables are cut to what is resampled, and lack most columns of a real analysis
    monkeypatch.setattr("metrics.report.run.require_tables", lambda run: None)

    def read(run: RunDir, adversaries: frozenset[int]) -> DeliveryRows:
        plain = pq.read_table(run.tables / "deliveries.parquet")
        return DeliveryRows(120, plain, make_rows(np.random.default_rng(7), 120).received)

    monkeypatch.setattr("metrics.comparison.resampling.read_delivery_rows", read)
    return Runs(template_run, folder)


def test_groups_are_by_what_differs_but_the_seed(runs):
    paths = [
        runs.make(1),
        runs.make(1, protocol="stan"),
        runs.make(2, description="another", name="other"),
        runs.make(2, protocol="stan"),
        runs.make(2, protocol="stan", time_dilation=2.0),
    ]
    groups = group_runs([RunDir(Path(path)) for path in paths])
    labels = ["random", "stan, time_dilation=1.0", "stan, time_dilation=2.0"]
    assert [group.label for group in groups] == labels
    assert [[str(run.path) for run in group.runs] for group in groups] == [paths[0::2][:2], paths[1:4:2], paths[4:]]
    assert groups[0].settings == {"protocol": "random", "time_dilation": 1.0}


def test_equal_experiments_are_grouped_by_the_revision(runs):
    groups = group_runs([RunDir(Path(runs.make(seed, revision=name))) for seed in (1, 2) for name in "ab"])
    assert [(group.label, len(group.runs)) for group in groups] == [("revision=a", 2), ("revision=b", 2)]


def test_runs_of_one_folder_are_a_group_if_asked_for(runs, tmp_path):
    paths = [Path(runs.make(seed, protocol=name)) for seed, name in ((1, "random"), (1, "stan"), (2, "random"))]
    moved = [tmp_path / folder / path.name for folder, path in zip(("base", "head", "base"), paths, strict=True)]
    for path, place in zip(paths, moved, strict=True):
        place.parent.mkdir(exist_ok=True)
        path.rename(place)
    groups = group_runs([RunDir(path) for path in moved], by_folder=True)
    assert [[run.path for run in group.runs] for group in groups] == [moved[0::2], [moved[1]]]
    assert [group.protocol for group in groups] == ["random", "stan"]
    assert [group.settings["folder"] for group in groups] == ["base", "head"]


@pytest.mark.parametrize(
    ("folders", "labels"),
    [
        (("base", "head"), ["folder=base", "folder=head"]),
        (("a", "a/b"), ["folder=a", "folder=a/b"]),
        (("a/same", "b/same"), ["folder=a/same", "folder=b/same"]),
        (("a", "a"), ["random"]),
    ],
)
def test_folders_have_short_names_however_deep_they_are(runs, tmp_path, folders, labels):
    places = [tmp_path / ("long-name-" * 5) / folder / str(number) for number, folder in enumerate(folders)]
    for seed, place in enumerate(places):
        place.parent.mkdir(parents=True, exist_ok=True)
        Path(runs.make(seed)).rename(place)
    assert [group.label for group in group_runs([RunDir(place) for place in places], by_folder=True)] == labels


def test_one_folder_is_one_group_however_it_is_named(runs, tmp_path, monkeypatch):
    paths = [Path(runs.make(seed)) for seed in (1, 2, 3)]
    monkeypatch.chdir(paths[0])
    named = [Path(), Path("..") / paths[1].name, paths[2]]
    assert len(group_runs([RunDir(path) for path in named], by_folder=True)) == 1


def test_of_several_attempts_the_last_one_is_compared(runs, tmp_path, capsys):
    """All have the same seed. Runs of other folders are others, whatever their names are."""
    first, second, third, other = paths = [Path(runs.make(seed)) for seed in (1, 1, 1, 2)]
    for number, (run, before) in enumerate(((second, first), (third, second)), 2):
        summary = json.loads((run / "summary.json").read_text())
        summary["attempt"] = {"attempt": number, "repeats": f"/elsewhere/{before.name}", "reasons": []}
        (run / "summary.json").write_text(json.dumps(summary))
    assert cli.main(["compare", *map(str, paths)]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == [f"left out: {run}: a later attempt repeats it" for run in (first, second)]
    [seeds] = [line.split(maxsplit=1)[1] for line in said.out.splitlines() if line.startswith("seeds")]
    assert seeds == "1, 2"
    assert cli.main(["compare", str(first), str(other)]) == 0
    assert "left out" not in capsys.readouterr().err
    for baseline in (first, second):
        assert cli.main(["compare", *map(str, paths), "--baseline", str(baseline)]) == 2
        said = f"stalls of the host spoiled {baseline}, and the attempt {third} replaced it; name that one"
        assert capsys.readouterr().err.splitlines()[-1].endswith(f"--baseline: {said}")
    assert cli.main(["compare", str(third), str(other), "--baseline", str(second)]) == 2, "though it is not compared"
    assert f"the attempt {third} replaced it" in capsys.readouterr().err
    assert cli.main(["compare", *map(str, paths), "--baseline", str(third)]) == 0
    elsewhere = tmp_path / "elsewhere" / first.name
    assert cli.main(["compare", *map(str, paths), "--baseline", str(elsewhere)]) == 2
    assert f"no group has the label or the run '{elsewhere}'" in capsys.readouterr().err


def test_attempts_that_repeat_each_other_have_no_last_one(runs, capsys):
    """Damaged runs: the search for the attempt that replaced a run ends nevertheless."""
    first, second, other = (Path(runs.make(seed)) for seed in (1, 1, 2))
    for run, before in ((first, second), (second, first)):
        summary = json.loads((run / "summary.json").read_text())
        summary["attempt"] = {"attempt": 2, "repeats": str(before), "reasons": []}
        (run / "summary.json").write_text(json.dumps(summary))
    assert cli.main(["compare", *map(str, (first, second, other)), "--baseline", str(first)]) == 2
    assert f"stalls of the host spoiled {first}" in capsys.readouterr().err


@pytest.mark.parametrize("protocol", ["random", "stan"])
def test_a_folder_with_several_experiments_says_so(runs, capsys, protocol):
    assert cli.main(["compare", runs.make(1), runs.make(2, protocol=protocol), "--by-folder"]) == 0
    assert ("its runs differ in protocol. They are not samples" in capsys.readouterr().out) is (protocol == "stan")


def test_a_table_for_a_comment_has_the_outcomes_and_the_cells(runs, tmp_path):
    paths = [runs.make(seed, factor, revision=name) for seed in (1, 2, 3) for name, factor in (("a", 1.0), ("b", 2.0))]
    condition = ["--fail-if", "propagation_delay_ms_p50 > +5%", "--markdown", str(tmp_path / "c.md")]
    assert cli.main(["compare", *paths, *condition]) == 4
    lines = (tmp_path / "c.md").read_text().splitlines()
    assert lines[0].startswith("- **met**: `propagation_delay_ms_p50 > +5%`: revision=b: the runs show")
    table = [line for line in lines if line.startswith("|")]
    assert table[:2] == ["|  | revision=a | revision=b |", "| --- | ---: | ---: |"]
    assert {line.count(" | ") for line in table} == {2}
    [row] = [line for line in table if line.startswith("| propagation_delay_ms_p50 |")]
    assert "<br>" in row
    assert "more than noise" in row


def test_settings_of_one_protocol_alone_are_apart(runs, tmp_path, capsys):
    paths = [
        runs.make(1, random={"degree": 4}, stan={}),
        runs.make(1, protocol="stan", random={}, stan={"view": 5, "period_s": 1.0}),
        runs.make(1, protocol="stan", random={}, stan={"view": 6, "period_s": 1.0}, time_dilation=2.0),
    ]
    groups = group_runs([RunDir(Path(path)) for path in paths])
    assert own_settings(groups) == {"random.degree": "random", "stan.period_s": "stan"}
    assert cli.main(["compare", *paths, "--measure=diameter", "--html", str(tmp_path / "c.html")]) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}
    assert {"protocol", "stan.view", "time_dilation", "own"} <= shown
    assert not {"random.degree", "stan.period_s"} & shown
    assert "<th>stan.period_s</th>" in (tmp_path / "c.html").read_text().split("<details>")[1].split("</details>")[0]
    same = group_runs([RunDir(Path(path)) for path in paths[1:]])
    assert own_settings(same) == {}, "all groups are of one protocol, so that every setting tells them apart"


def test_a_seed_that_ran_twice_elsewhere_is_a_sample(runs, capsys):
    assert cli.main(["compare", runs.make(1), runs.make(1)]) == 0
    assert "copies" not in capsys.readouterr().out


def test_groups_of_equal_labels_are_numbered(runs):
    long = "x" * 50
    paths = [runs.make(1, scenario=f"{long}{number}") for number in range(2)]
    labels = [group.label for group in group_runs([RunDir(Path(path)) for path in paths])]
    assert labels[1] == f"{labels[0]} #2"


def test_cells_say_value_difference_and_noise():
    random = np.random.default_rng(6)
    groups = [Group(name, headline_runs(random, 8, shift), {}) for name, shift in (("a", 0.0), ("b", 60.0))]
    first, second, *_ = compare(groups).rows
    base = first.cells[0].estimate
    value, change, noise = describe_cell(first.cells[1], base.value)
    assert value == f"{first.cells[1].estimate.value:.4g} ± {first.cells[1].estimate.half_width:.3g} (n=8)"
    assert change.startswith(f"+{first.cells[1].difference.value:.4g} ± ") and change.endswith("%)")
    assert noise == "more than noise (two-sided p < 0.001, adjusted < 0.001)"
    assert describe_cell(second.cells[1], 1.0)[2].startswith("could be noise (two-sided p = 0.")
    assert describe_cell(first.cells[0], base.value)[1:] == ("", "")
    lower = replace(first.cells[1], difference=Difference(-3.0, 1.0, 0.5))
    assert "(-33.3%)" in describe_cell(lower, -9.0)[1]


def test_curves_are_of_all_runs_of_a_group(monkeypatch):
    latencies = {"one": [10, 30, np.nan], "two": [20], "lost": [np.nan]}
    degrees = {"one": [2], "two": [4, 6], "lost": []}

    def read(path: str) -> SimpleNamespace:
        delivered_ns = np.array(latencies[path]) * 1e6
        columns = {"node": 1, "topic": 0, "publish_ns": 0, "direct_delay_ms": 1.0, "copies": 1}
        rows = pd.DataFrame({"latency_ms": latencies[path], "delivered_ns": delivered_ns}).assign(**columns)
        degree = pd.DataFrame({"degree": degrees[path]})
        return SimpleNamespace(totals=make_totals(0, rows), last=lambda name: degree)

    monkeypatch.setattr("metrics.report.comparison.Run", read)
    groups: Any = [SimpleNamespace(label="g", runs=[SimpleNamespace(path=path) for path in ("one", "two", "lost")])]
    drawing = delay_figure(groups)
    (delay,), (degree,) = (each.canvas.axes[0].get_lines() for each in (drawing, degree_figure(groups)))
    assert delay.get_xdata().tolist() == [10, 20, 30]
    assert delay.get_ydata().tolist() == pytest.approx([1 / 5, 2 / 5, 3 / 5]), "of expected deliveries"
    assert drawing.seen == "g: median 20 ms, 99th percentile 24.9 ms (means of 2 runs)."
    alone: Any = [SimpleNamespace(label="g", runs=groups[0].runs[:1])]
    assert delay_figure(alone).seen == "g: median 20 ms, 99th percentile 29.8 ms."
    nothing: Any = [SimpleNamespace(label="g", runs=groups[0].runs[2:])]
    assert delay_figure(nothing).seen == "No data."
    assert degree.get_xdata().tolist() == [2, 4, 6]


def test_a_seed_that_was_simulated_twice_is_named(runs, capsys):
    assert cli.main(["compare", runs.make(1, testbed="simulated"), runs.make(1, testbed="simulated")]) == 0
    assert "These runs are copies and not samples" in " ".join(capsys.readouterr().out.split())


def test_three_percent_are_found_and_written_down(runs, tmp_path, capsys):
    base = [runs.make(seed) for seed in range(1, 7)]
    slow = [runs.make(seed, factor=1.03, protocol="stan") for seed in range(1, 7)]
    outputs = {kind: tmp_path / f"c.{kind}" for kind in ("html", "csv", "json")}
    asked = [word for kind, path in outputs.items() for word in (f"--{kind}", str(path))]
    failing = ["--fail-if", "propagation_delay_ms_mean > +2%"]
    assert cli.main(["compare", *base, *slow, *asked, *failing]) == 4
    met = "met: propagation_delay_ms_mean > +2%: stan: the runs show that it is more than 2 % above the baseline"
    assert met in capsys.readouterr().out.splitlines()[-1].partition(": difference +")[0]
    rows = {(row["measure"], row["group"]): row for row in csv.DictReader(outputs["csv"].open())}
    row = rows["propagation_delay_ms_mean", "stan"]
    assert row["is_real"] == "True"
    assert float(row["difference_ratio"]) == pytest.approx(0.03, abs=0.02)
    assert (row["n"], row["interval_over"], row["runs"]) == ("6", "runs", "6")
    assert float(row["p"]) <= float(row["p_adjusted"])
    assert rows["propagation_delay_ms_mean", "random"]["difference"] == ""
    document = json.loads(outputs["json"].read_text())
    assert document["baseline"] == "random"
    assert [each["state"] for each in document["conditions"]] == ["met"]
    assert {each["measure"] for each in document["measures"]} == {name for name, _ in rows}
    page = outputs["html"].read_text()
    assert "prefers-color-scheme: dark" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<svg ") == page.count('role="img"') == 2
    assert cli.main(["compare", *base, *slow, "--fail-if", "propagation_delay_ms_mean > +20%"]) == 0
    faster = ["--baseline", "stan", "--fail-if", "propagation_delay_ms_mean < -2%"]
    assert cli.main(["compare", *base, *slow, *faster]) == 4, "with the other group as the baseline"
    assert cli.main(["compare", *base, *slow, "--baseline", slow[2], *faster[2:]]) == 4


def test_single_runs_are_judged_by_their_messages(runs, capsys):
    pair = [runs.make(1), runs.make(2, factor=1.1, protocol="stan")]
    shown = ["--measure", "propagation_delay_ms_mean"]
    assert cli.main(["compare", *pair, *shown, "--fail-if", "propagation_delay_ms_mean > +1%"]) == 4
    assert "covers only the variation between the messages" in " ".join(capsys.readouterr().out.split())


def test_what_cannot_be_judged_has_its_own_status(runs, capsys):
    pair = [runs.make(1), runs.make(2, protocol="stan")]
    summary = Path(pair[1]) / "summary.json"
    summary.write_text(summary.read_text().replace('"diameter": 3', '"diameter": 4'))
    shown = ["--measure", "diameter"]
    assert cli.main(["compare", *pair, *shown, "--fail-if", "diameter > +5%"]) == 3
    said = capsys.readouterr().out
    assert "undecided: diameter > +5%: stan: the runs do not show whether it is more than 5 % above" in said
    assert ": difference +1 (+33.33 %), whose noise is unknown" in said
    assert cli.main(["compare", *pair, *shown, "--fail-if", "clustering > +5%"]) == 3
    assert "no value" in capsys.readouterr().out
    pair[1] = runs.make(2, protocol="stan", verdict="invalid")
    assert cli.main(["compare", *pair, *shown, "--fail-if", "diameter > +5%"]) == 3
    assert cli.main(["compare", *pair, *shown]) == 0
    assert f"invalid run: {pair[1]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fail-if", "diametre > +5%"], "--fail-if: no measure is called 'diametre'; similar: diameter"),
        (["--measure", "diametre"], "--measure: no measure is called 'diametre'"),
        (["--baseline", "x"], "--baseline: no group has the label or the run 'x'; the groups: 'random'"),
        (["--fail-if", "diameter > +5%"], "all runs are of one group"),
    ],
)
def test_usage_errors(runs, capsys, options, words):
    assert cli.main(["compare", runs.make(1), runs.make(2), *options]) == 2
    assert words in capsys.readouterr().err


def test_a_lone_run_is_judged_by_the_runs_of_the_other_group(runs, tmp_path, capsys):
    base = [runs.make(seed) for seed in (1, 2, 3)]
    path = tmp_path / "c.json"
    lone = runs.make(4, factor=1.5, protocol="stan")
    shown = ["--measure", "propagation_delay_ms_mean"]
    assert cli.main(["compare", *base, lone, *shown, "--json", str(path)]) == 0
    rows = {row["group"]: row for row in json.loads(path.read_text())["measures"]}
    assert len(rows) == 2
    width = rows["random"]["ci95_half_width"]
    assert rows["stan"]["difference_ci95_half_width"] == pytest.approx(width * 4**0.5)
    assert rows["stan"]["is_real"]
    assert cli.main(["compare", *base, lone, *shown, "--json", str(path), "--baseline", lone]) == 0
    swapped = {row["group"]: row for row in json.loads(path.read_text())["measures"]}
    assert swapped["random"]["difference"] == pytest.approx(-rows["stan"]["difference"])
