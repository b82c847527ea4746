"""Study files: one line for every fault, the points that a grid makes, and what a run is known by."""

from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import ExperimentError
from harness.studies.loader import load_study
from harness.studies.points import axes_of, describe_runs, points_of, seeds_of
from harness.studies.store import Store, SweepSpec, jobs_of, study_code, write_spec
from harness.studies.sweep import sweep
from metrics.executors import HERE

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "playbooks" / "studies"

GOOD = """
name = "small"
measures = ["degree_mean", "degrees"]
[experiment.underlay]
kind = "uniform"
[run]
length_s = 5
[grid]
nodes = { keys = ["underlay.hosts"], values = [10, 20] }
random.degree = [2, 3]
"""

TABLE = '[[table]]\nname = "t"\ntitle = "T"\nrows = ["nodes"]\ncolumns = "random.degree"\nmeasures = ["degree_mean"]\n'
CLAIM = '[[claim]]\ntext = "t"\npaper = "p"\nof = "degree_mean"\nmet = { at_least = 1 }\n'
SAME = CLAIM.replace("met = { at_least = 1 }\n", "")
FIGURE = '[[figure]]\nname = "f"\ntitle = "F"\nx = "nodes"\ny = ["degree_mean"]\nseries = ["random.degree"]\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "study.toml"
    path.write_text(text)
    return path


# (what replaces what in the good study, or follows it; what the error must say after the file's name)
FAULTS = {
    "no_name": ('name = "small"', "", ": $.name: missing"),
    "unknown_key": ('name = "small"', 'name = "small"\nseds = 3', ": $.seds: unknown field; did you mean seeds?"),
    "seeds_none": ('name = "small"', 'name = "small"\nseeds = 0', ": $.seeds: expected an integer >= 1 or a list of"),
    "seeds_twice": ('name = "small"', 'name = "small"\nseeds = [1, 1]', ": $.seeds: a seed occurs twice"),
    "measure": ("degree_mean", "degree_men", ": $.measures[0]: no such measure: 'degree_men'"),
    "measure_published": ("degree_mean", "delivery_ratio", ": $.measures[0]: needs publications"),
    "counted_late": ("length_s = 5", "length_s = 5\ncontrol_from_s = 5", ": $.run.control_from_s: expected less than"),
    "settled_alone": ("length_s = 5", "settled_s = 5", ": $.run.settled_s: needs length_s"),
    "skips": ("length_s = 5", "skip_messages = 1", ": $.run.skip_messages: expected less than epoch_messages"),
    "epochs": ("length_s = 5", "length_s = 5\nepoch_messages = 9", ": $.run.epoch_messages: needs publications"),
    "windows": ("length_s = 5", "length_s = 5\nwindow_s = 9", ": $.run.window_s: needs publications"),
    "windows_epochs": (
        "length_s = 5",
        "window_s = 9\nepoch_messages = 9",
        ": $.run.window_s: epoch_messages already groups the messages",
    ),
    "run_key": ("length_s", "lenth_s", ": $.run.lenth_s: unknown field; did you mean length_s?"),
    "axis_empty": ("[2, 3]", "[]", ": $.grid.random.degree: expected a list of at least one value"),
    "axis_value": ("[2, 3]", "2", ": $.grid.random.degree: expected a list of at least one value"),
    "axis_twice": ("[2, 3]", "[2, 2]", ": $.grid.random.degree: 2 occurs twice"),
    "axis_form": ('keys = ["underlay.hosts"]', "key = 3", ": $.grid.nodes: expected a list of values, or keys"),
    "axis_widths": ("[10, 20]", "[[10, 20]]", ": $.grid.nodes: expected numbers, texts or booleans, got [10, 20]"),
    "axis_key": (
        "random.degree",
        "random.degre",
        ": $.experiment.random.degre: unknown field; did you mean degree? (at",
    ),
    "point_range": (
        "[10, 20]",
        "[1]",
        ": $.experiment.underlay.hosts: expected an integer >= 2 and <= 10000, got 1 (at",
    ),
    "point_rule": (
        "[2, 3]",
        "[10]",
        ": $.experiment.random.degree: expected fewer than the 10 hosts, got 10 (at nodes",
    ),
    "through_value": ("random.degree", "name.degree", ": $.experiment.name.degree: name is a value, not a section"),
    "testbed": (
        "[run]",
        '[experiment]\ntestbed = "remote"\ninventory = "one.toml"\n[run]',
        ": $.experiment.testbed: studies are simulated or run",
    ),
    "seed": ("[run]", "[experiment]\nseed = 4\n[run]", ": $.experiment.seed: set by the study's seeds"),
    "nan": ("length_s = 5", "length_s = nan", ": $.run.length_s: expected a finite number, got nan"),
    "variant_twice": ("[run]", '[[variants]]\nname = "a"\n[[variants]]\nname = "a"\n[run]', ": $.variants: 'a' occurs"),
    "quick_axis": (
        None,
        "[quick]\ngrid = { nods = [3] }\n",
        ": $.quick.grid.nods: no such axis; there are nodes, random",
    ),
    "table_axis": (None, TABLE.replace('["nodes"]', '["hosts"]'), ": $.table[0]: no axis is called 'hosts'; there are"),
    "table_silent": (
        None,
        TABLE.replace('["nodes"]', '["measure"]'),
        ": $.table[0]: missing the axis 'nodes'",
    ),
    "table_twice": (None, TABLE.replace('["nodes"]', '["nodes", "nodes"]'), ": $.table[0]: an axis occurs twice"),
    "table_measure": (
        None,
        TABLE.replace("degree_mean", "diameter"),
        ": $.table[0].measures[0]: 'diameter' is not among",
    ),
    "table_where": (None, TABLE + "where = { seed = 3 }\n", ": $.table[0].where: no axis is called 'seed'"),
    "table_entry": (
        None,
        TABLE + "[table.paper]\ncolumns = [2, 3]\nrows = [[10, 2.5]]\n",
        ": $.table[0].paper.rows[0]: expected 3 entries, got 2",
    ),
    "table_key": (None, TABLE + "row = 3\n", ": $.table[0].row: unknown field; did you mean rows?"),
    "paper_key": (None, TABLE + "[table.paper]\ncolums = [2]\n", ": $.table[0].paper.colums: unknown field; did you"),
    "at_twice": (
        None,
        TABLE.replace('["degree_mean"]', '[{ of = "last degree_mean", at = 5 }]'),
        ": $.table[0].measures[0]: `at` cannot be combined with last",
    ),
    "label_key": (
        None,
        TABLE.replace('["degree_mean"]', '[{ of = "degree_mean", lable = "d" }]'),
        ": $.table[0].measures[0].lable: unknown field; did you mean label?",
    ),
    "figure_axis": (None, FIGURE.replace('"nodes"', '"rank"'), ": $.figure[0].x: no axis is called 'rank', and not"),
    "figure_epochs": (None, FIGURE.replace('"nodes"', '"epoch"'), ": $.figure[0].x: needs run.epoch_messages"),
    "figure_at": (
        None,
        FIGURE.replace('"nodes"', '"at_s"').replace('["degree_mean"]', '[{ of = "degree_mean", at = 5 }]'),
        ": $.figure[0].y: `at` cannot be given, since at_s is the x axis",
    ),
    "figure_silent": (
        None,
        FIGURE.replace("series", "#"),
        ": $.figure[0]: missing the axis 'random.degree'",
    ),
    "figure_kind": (
        None,
        FIGURE + 'kind = "pie"\n',
        ': $.figure[0].kind: expected "bars", "cdf", "histogram", "line", "log-log", "log-y" or "rank"',
    ),
    "claim_measure": (None, CLAIM.replace("degree_mean", "diameter"), ": $.claim[0].of[0]: 'diameter' is not among"),
    "claim_axis": (None, CLAIM + "where = { node = 10 }\n", ": $.claim[0].where: no axis is called 'node'; there are"),
    "claim_value": (None, CLAIM + "over = { nodes = 11 }\n", ": $.claim[0].over: the axis 'nodes' has no value 11"),
    "claim_divisor": (
        None,
        CLAIM + 'over_of = "x"\n',
        ": $.claim[0].over_of[0]: 'x' is not among the study's measures",
    ),
    "claim_unjudged": (None, CLAIM.replace("met =", "partly ="), ": $.claim[0].met: expected either met, same_as or"),
    "claim_same_met": (None, CLAIM + 'same_as = "degree_mean"\n', ": $.claim[0].met: expected either met, same_as or"),
    "claim_reported_met": (None, CLAIM + "reported = true\n", ": $.claim[0].met: expected either met, same_as or"),
    "claim_reported_partly": (
        None,
        CLAIM.replace("met =", "partly =") + "reported = true\n",
        ": $.claim[0].partly: cannot be combined with reported",
    ),
    "claim_ours_excused": (
        None,
        CLAIM + 'ours = true\nirreproducible = "x"\n',
        ": $.claim[0].irreproducible: needs a judged claim of the paper",
    ),
    "claim_two_reasons": (
        None,
        CLAIM + 'why = "x"\nirreproducible = "x"\n',
        ": $.claim[0].irreproducible: takes the place of why",
    ),
    "claim_same": (None, SAME + 'same_as = "diameter"\n', ": $.claim[0].same_as[0]: 'diameter' is not among"),
    "claim_same_over": (
        None,
        SAME + 'same_as = "degree_mean"\nover_of = "degree_mean"\n',
        ": $.claim[0].same_as: cannot be combined with others",
    ),
    "claim_growth": (None, CLAIM + 'growth = { along = "hosts" }\n', ": $.claim[0].growth: no axis is called 'hosts'"),
    "claim_growth_over": (
        None,
        CLAIM + 'growth = { along = "nodes", over = "diameter" }\n',
        ": $.claim[0].growth[0]: 'diameter' is not among",
    ),
    "claim_growth_divided": (
        None,
        CLAIM + 'growth = { along = "nodes" }\nover = { nodes = 10 }\n',
        ": $.claim[0].growth: cannot be combined with a comparison",
    ),
    "table_growth": (
        "[run]",
        '[[variants]]\nname = "a"\n' + TABLE.replace('"random.degree"', '"variant"') + 'growth_over = "variant"\n[run]',
        ": $.table[0]",
    ),
    "claim_reading": (None, CLAIM + 'reading = "r"\n', ": $.claim[0]: reading needs number"),
    "claim_twice": (
        None,
        2 * (CLAIM + 'number = "n"\nreading = "r"\n'),
        ": $.claim[1]: a second claim about 'n' and 'r'",
    ),
    "claim_bounds": (None, CLAIM.replace("least", "lest"), ": $.claim[0].met.at_lest: unknown field; did you mean"),
    "names_twice": (None, TABLE + TABLE, ": $.table: two of them have the same name"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_that_names_the_place(fault, tmp_path, capsys):
    old, new, problem = FAULTS[fault]
    assert old is None or old in GOOD
    path = write(tmp_path, GOOD + new if old is None else GOOD.replace(old, new, 1))
    out = tmp_path / "out"
    if fault == "quick_axis":
        status = main(["sweep", str(path), "--quick", "--out", str(out)])
    else:
        status = main(["sweep", str(path), "--out", str(out)])
    printed = capsys.readouterr().err
    assert status == 2
    assert printed.startswith(f"trellis sweep: {path}{problem}"), printed
    assert printed.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "origin"),
    [
        (["--set", "experiment.underlay.delay_ms=0"], "--set experiment.underlay.delay_ms=0: expected a number"),
        (["--set", "grid.random.degree=[99]"], "{path} with --set grid.random.degree=[99]: $.experiment.random.degree"),
        (["--seeds", "0"], "--seeds 0: expected an integer >= 1"),
    ],
)
def test_a_fault_of_an_option_names_the_option(options, origin, tmp_path, capsys):
    path = write(tmp_path, GOOD)
    assert main(["sweep", str(path), "--out", str(tmp_path / "out"), *options]) == 2
    assert capsys.readouterr().err.startswith(f"trellis sweep: {origin.format(path=path)}")


def test_every_combination_is_a_point_and_the_last_axis_varies_fastest(tmp_path):
    study = load_study(write(tmp_path, GOOD))
    points = points_of(study)
    assert [tuple(point.at.values()) for point in points] == [(10, 2), (10, 3), (20, 2), (20, 3)]
    assert [(point.experiment.underlay.hosts, point.experiment.random.degree) for point in points] == [
        (10, 2),
        (10, 3),
        (20, 2),
        (20, 3),
    ]
    assert all(point.experiment.testbed == "simulated" for point in points)


def test_over_time_are_snapshots_and_with_windows_also_deliveries_but_no_scores(tmp_path):
    figure = FIGURE.replace('"nodes"', '"at_s"').replace("degree_mean", "delivery_ratio")
    figure = figure.replace('["random.degree"]', '["nodes", "random.degree"]')
    measures = '"degree_mean", "delivery_ratio", "score_mean"'
    windowed = GOOD.replace("length_s = 5", "window_s = 9").replace('"degree_mean"', measures) + figure
    assert load_study(write(tmp_path, windowed)).run.window_s == 9
    for old, new in (("window_s = 9", "snapshot_every_s = 9"), ('y = ["delivery_ratio"]', 'y = ["score_mean"]')):
        with pytest.raises(ExperimentError, match="expected measures of snapshots, or of windows, only"):
            load_study(write(tmp_path, windowed.replace(old, new)))


def test_variants_are_the_first_axis_and_set_what_they_name(tmp_path):
    variants = '[[variants]]\nname = "all"\nset = { protocol = "complete" }\n[[variants]]\nname = "some"\n'
    study = load_study(write(tmp_path, GOOD + variants))
    assert [axis.name for axis in axes_of(study)] == ["variant", "nodes", "random.degree"]
    assert [point.experiment.protocol for point in points_of(study)] == ["complete"] * 4 + ["random"] * 4


def test_an_axis_may_set_several_keys_alike_or_each_for_itself(tmp_path):
    text = GOOD.replace(
        "random.degree = [2, 3]",
        'size = { keys = ["interests.subscriptions_min", "interests.subscriptions_max"], values = [4, [2, 6]] }',
    )
    points = points_of(load_study(write(tmp_path, text), ["grid.nodes.values=[10]"]))
    assert [point.at["size"] for point in points] == [4, "2-6"]
    interests = [point.experiment.interests for point in points]
    assert [(each.subscriptions_min, each.subscriptions_max) for each in interests] == [(4, 4), (2, 6)]


def test_overrides_are_keys_of_the_study_file(tmp_path):
    path = write(tmp_path, GOOD)
    study = load_study(path, ["grid.random.degree=[5]", "experiment.workload.topics=7", "run.length_s=9"], seeds=2)
    assert [axis.values for axis in axes_of(study)] == [(10, 20), (5,)]
    assert {point.experiment.workload.topics for point in points_of(study)} == {7}
    assert (study.run.length_s, seeds_of(study)) == (9, (1, 2))


def test_the_quick_profile_narrows_axes_and_keeps_what_they_set(tmp_path):
    quick = (
        "[quick]\nseeds = [4]\ngrid = { nodes = [6] }\nset = { workload = { topics = 3 } }\nrun = { length_s = 2 }\n"
    )
    path = write(tmp_path, GOOD + quick.replace("{ workload = { topics = 3 } }", '{ "workload.topics" = 3 }'))
    study = load_study(path, quick=True)
    assert [point.experiment.underlay.hosts for point in points_of(study)] == [6, 6]
    assert {point.experiment.workload.topics for point in points_of(study)} == {3}
    assert (study.run.length_s, seeds_of(study)) == (2, (4,))
    assert seeds_of(load_study(path, quick=True, seeds=2)) == (1, 2)


def test_what_the_command_line_sets_holds_under_the_quick_profile_too(tmp_path):
    quick = """
[quick]
seeds = 2
set = { "workload.topics" = 4 }
grid = { nodes = [6] }
run = { length_s = 3 }
"""
    path = write(tmp_path, GOOD + quick)
    overrides = ["experiment.workload.topics=7", "grid.nodes.values=[8, 9]", "seeds=[8, 9, 10]", "run.length_s=9"]
    for given in ([], overrides):
        study = load_study(path, given, quick=True)
        points = points_of(study)
        assert {point.experiment.underlay.hosts for point in points} == ({8, 9} if given else {6})
        assert {point.experiment.workload.topics for point in points} == ({7} if given else {4})
        assert seeds_of(study) == ((8, 9, 10) if given else (1, 2))
        assert study.run.length_s == (9 if given else 3)


def test_what_an_axis_sets_everywhere_is_not_set_in_vain(tmp_path):
    with pytest.raises(ExperimentError, match=r"--set experiment\.random\.degree: the axis 'random\.degree' sets it"):
        load_study(write(tmp_path, GOOD), ["experiment.random.degree=9"])


def test_the_quick_profile_never_stands_beside_the_papers_numbers_and_claims(tmp_path):
    path = write(tmp_path, GOOD + TABLE + "[table.paper]\ncolumns = [2, 3]\nrows = [[10, 2.5, 3.5]]\n" + CLAIM)
    full, quick = load_study(path), load_study(path, quick=True)
    assert full.table[0].paper is not None
    assert quick.table[0].paper is None
    assert (len(full.claim), quick.claim) == (1, ())


def test_overriding_the_grid_leaves_out_the_claims_about_other_values(tmp_path):
    claims = "".join(CLAIM + f"where = {{ nodes = {nodes} }}\n" for nodes in (10, 20)) + CLAIM
    path = write(tmp_path, GOOD + claims)
    assert len(load_study(path).claim) == 3
    assert [claim.where for claim in load_study(path, ["grid.nodes.values=[20]"]).claim] == [{"nodes": 20}, {}]
    assert len(load_study(path, ["run.length_s=4"]).claim) == 3


def test_a_run_is_known_by_everything_that_bears_on_it_and_by_nothing_else(tmp_path):
    def keys(text: str, *overrides: str) -> set[str]:
        return {job.key for job in jobs_of(load_study(write(tmp_path, text), overrides), tmp_path)}

    base = keys(GOOD)
    assert len(base) == 4 * 3
    assert keys(GOOD + TABLE) == base
    assert keys(GOOD, 'description="other words"', "seeds=[3, 2, 1]") == base
    assert keys(GOOD, "seeds=4") > base
    for change in ("run.length_s=6", "experiment.workload.topics=11", "grid.random.degree=[4, 5]", "seeds=[7, 8, 9]"):
        assert not keys(GOOD, change) & base, change
    assert not keys(GOOD.replace('"degrees"', '"degree_max"')) & base


@pytest.mark.parametrize(
    ("section", "name"),
    [("interests", "interests.csv"), ("churn", "sessions.csv"), ("underlay", "matrix.csv")],
)
def test_a_run_is_known_by_what_stands_in_the_files_that_it_reads(tmp_path, section, name):
    kind = {"interests": "file", "churn": "sessions", "underlay": "matrix"}[section]
    overrides = (f"experiment.{section}.kind={kind}", f"experiment.{section}.path={name}")

    def keys(folder: str, content: str) -> set[str]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(content)
        return {job.key for job in jobs_of(load_study(write(tmp_path, GOOD), overrides), tmp_path / folder)}

    assert keys("a", "1,2\n") == keys("b", "1,2\n")
    assert not keys("c", "1,3\n") & keys("d", "1,2\n")


def test_a_run_is_known_by_the_data_that_it_finds_by_itself(tmp_path, monkeypatch):
    def keys(content: str) -> set[str]:
        data = tmp_path / content
        (data / "skype-churn").mkdir(parents=True)
        (data / "skype-churn" / "skype-superpeers-sessions.csv.gz").write_text(content)
        monkeypatch.setenv("TRELLIS_DATA", str(data))
        study = load_study(write(tmp_path, GOOD), ["experiment.churn.kind=sessions"])
        return {job.key for job in jobs_of(study, tmp_path)}

    assert not keys("a") & keys("b")


def test_points_with_the_same_experiment_share_a_run(tmp_path):
    text = GOOD.replace("random.degree = [2, 3]", "topiary.degree = [2, 3]")
    study, out = load_study(write(tmp_path, text), ["seeds=1"]), tmp_path / "out"
    write_spec(out, SweepSpec(study, str(tmp_path / "study.toml"), study_code(study), (), {"python": "3"}))
    assert sweep(out, HERE) == []
    assert len(list((out / "runs").iterdir())) == 2
    assert describe_runs(study) == "2 different runs (points: 4, seeds: 1; points with equal experiments share runs)"
    found = [Store(out).read(job) for job in jobs_of(study, tmp_path)]
    assert [run.at for run in found] == [point.at for point in points_of(study)]
    assert found[0].rows == found[1].rows != found[2].rows
    assert "s in 2 runs" in (out / "index.html").read_text()


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
def test_the_studies_of_the_playbooks_are_valid(path, quick):
    study = load_study(path, quick=quick)
    assert study.name == path.stem
    full, small = (
        sum(job.cost for job in jobs_of(load_study(path, quick=each), path.parent)) for each in (False, True)
    )
    assert small < full / 2, "a quick profile is much smaller"
    assert describe_runs(study).startswith(f"{len({job.key for job in jobs_of(study, path.parent)})} ")


def test_check_counts_a_studys_runs_and_refuses_its_faults(tmp_path, capsys):
    path = write(tmp_path, GOOD)
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid: small, a study of 12 runs (points: 4, seeds: 3)\n"
    assert main(["check", str(path), "--set", "run.lenth_s=3"]) == 2
    assert "--set run.lenth_s=3: unknown field" in capsys.readouterr().err
    assert main(["check", str(path), "--seed", "3"]) == 2
    assert "--set seeds=[3]" in capsys.readouterr().err


def test_studies_and_experiments_taken_for_each_other_are_sent_to_the_right_verb(tmp_path, capsys):
    study = write(tmp_path, GOOD)
    assert main(["run", str(study)]) == 2
    assert capsys.readouterr().err.endswith(f"a study, not an experiment; try: trellis sweep {study}\n")
    experiment = write(tmp_path, 'name = "x"\nprotocol = "stan"\n')
    assert main(["sweep", str(experiment)]) == 2
    assert capsys.readouterr().err.endswith(f"an experiment, not a study; try: trellis run {experiment}\n")


def test_a_missing_study_is_a_usage_error(tmp_path):
    with pytest.raises(ExperimentError, match=r"none\.toml: No such file"):
        load_study(tmp_path / "none.toml")


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_page_lists_every_study_with_what_it_reproduces(path):
    page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    assert f"| `{path.stem}` | {load_study(path).reproduces}" in page
