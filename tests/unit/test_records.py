"""Records of results: what they keep of a sweep, how a stale one is found, and how claims are judged by them."""

import json
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.studies.claims import judge, show_finding
from harness.studies.code_hash import CODE, code_of
from harness.studies.figures import make_curves
from harness.studies.form import Bounds, ClaimSpec, Shown, Study
from harness.studies.loader import load_study
from harness.studies.origin import Machine, Origin, find_origin
from harness.studies.point_run import Row
from harness.studies.points import keep_points, places_of, points_of, seeds_of
from harness.studies.record import Record, StaleRecord, encode_record, make_source, read_record
from harness.studies.store import Result
from harness.studies.tables import make_table
from metrics.intervals import interval
from tests.examples import examples

STUDY = """
name = "small"
reproduces = "A paper, Table 1"
seeds = [4, 7]
measures = [
    "degree_mean", "degrees", "delivery_ratio", "hops_mean", "hops_max", "diameter", "topic_delay_ms_mean",
    "topic_subscribers",
]
[experiment.underlay]
kind = "uniform"
[run]
window_s = 10
snapshots_s = [1, 2]
[grid]
nodes = { keys = ["underlay.hosts"], values = [10, 20] }
[[variants]]
name = "one, plain"
[[variants]]
name = "two"
set = { "random.degree" = 5 }
[[table]]
name = "table"
title = "Degrees"
rows = ["measure", "variant"]
columns = "nodes"
digits = 6
measures = [
    "degree_mean",
    { of = "degrees", by = 3 },
    { of = "first diameter" },
    { of = "delivery_ratio", label = "all" },
    { of = "min delivery_ratio", label = "worst" },
    { of = "delivery_ratio", label = "at 10 s", at = 10 },
    { of = "last topic_delay_ms_mean", by = 2 },
    "hops_mean",
    "hops_max",
]
[[figure]]
name = "figure"
title = "Distribution"
kind = "cdf"
x = "degree"
y = [{ of = "first degrees", label = "before" }, { of = "degrees", label = "after" }]
series = ["variant"]
where = { nodes = 10 }
[[figure]]
name = "ranks"
title = "Subscribers"
kind = "rank"
x = "rank"
y = ["topic_subscribers"]
series = ["variant"]
where = { nodes = 10 }
[[figure]]
name = "over-time"
title = "Over time"
x = "at_s"
y = ["hops_mean"]
series = ["variant", "nodes"]
[[claim]]
text = "hops"
paper = "fewer"
of = { of = "hops_mean", at = 20 }
over_at = 10
met = { at_most = 1 }
why = "Hops do not change."
"""

ORIGIN = Origin("abcdef012345", True, "2026-11-25", Machine("a processor", 2, "6.1", "3.11.2"))


def load(folder: Path, text: str = STUDY) -> Study:
    path = folder / "small.toml"
    path.write_text(text)
    return load_study(path)


def results_of(study: Study) -> list[Result]:
    """Results with different numbers in every row; a run lacks a measure."""
    made = []
    for point in points_of(study):
        code = code_of([point.experiment])
        for seed in seeds_of(study):
            value = len(made) + seed / 9
            rows = [
                *(Row("degree_mean", at_s, None, value + at_s) for at_s in (1.0, 2.0, 39.5 + seed)),
                *(Row("degrees", at_s, d, 7 * d + at_s + seed) for at_s in (1.0, 39.5 + seed) for d in (2, 3, seed)),
                *(Row("diameter", at_s, None, 10 * at_s + seed) for at_s in (1.0, 39.5 + seed)),
                *(Row("delivery_ratio", moment, None, 1 / (value + 3)) for moment in (None, 10.0, 20.0)),
                *(Row("hops_mean", moment, None, value * 1e-3) for moment in (None, 10.0, 20.0)),
                *(Row("topic_delay_ms_mean", moment, 2.0, value / 7 + (moment or 0)) for moment in (None, 10.0, 20.0)),
                *(Row("topic_subscribers", None, rank, 5000 // rank) for rank in range(1, 1001)),
                *([Row("hops_max", None, None, 12345678 + len(made))] if len(made) else []),
            ]
            made.append(Result(str(len(made)), point.at, seed, code, 12.44, 300 + seed, tuple(rows)))
    return made


def write(folder: Path, study: Study, results: list[Result]) -> Path:
    source = make_source(study, "./trellis sweep small.toml", ORIGIN, results)
    (folder / "small.json").write_text(encode_record(study, Record(source, tuple(results))))
    return folder / "small.json"


def rounded(value: float) -> object:
    return pytest.approx(value, rel=5e-6)


def test_tables_figures_and_claims_of_a_record_are_those_of_the_results(tmp_path):
    study = load(tmp_path)
    results = results_of(study)
    read = read_record(write(tmp_path, study, results), study).results
    assert [(run.at, run.seed, run.cpu_s, run.peak_mib) for run in read] == [
        (run.at, run.seed, 12.4, run.peak_mib) for run in results
    ]
    for table in study.table:
        for (labels, ours), (names, theirs) in zip(
            make_table(table, read).rows, make_table(table, results).rows, strict=True
        ):
            assert labels == names
            for mine, other in zip(ours, theirs, strict=True):
                assert (mine.ours.mean, mine.ours.n) == (pytest.approx(other.ours.mean, rel=1e-5), other.ours.n)
                assert (mine.ours.half_width or 0) == pytest.approx(other.ours.half_width or 0, rel=5e-3)
    distribution, ranks, moving = study.figure
    for figure in (distribution, moving):
        pairs = list(zip(make_curves(figure, read), make_curves(figure, results), strict=True))
        assert pairs
        for mine, other in pairs:
            assert mine.label == other.label
            for (x, over), (place, expected) in zip(mine.points, other.points, strict=True):
                assert (x, over.mean, over.n) == (place, rounded(expected.mean), expected.n)
    kept = dict(next(make_curves(ranks, read)).points)
    whole = dict(next(make_curves(ranks, results)).points)
    assert set(range(1, 21)) | {1000} <= kept.keys() and len(kept) < 130
    assert all(kept[rank].mean == whole[rank].mean for rank in kept)
    for claim in study.claim:
        assert show_finding(judge(claim, read)) == show_finding(judge(claim, results))


def test_a_record_has_every_single_number_of_every_seed_with_mean_interval_and_n(tmp_path):
    study = load(tmp_path)
    results = results_of(study)
    content = json.loads(write(tmp_path, study, results).read_bytes())
    point = content["points"][0]
    assert point["at"] == {"variant": "one, plain", "nodes": 10}
    first, second = (results[index].rows for index in (0, 1))
    degrees = [[row.value for row in rows if row.measure == "degree_mean"][-1] for rows in (first, second)]
    mean, half_width, n = interval(degrees)
    assert point["values"]["degree_mean"] == {
        "mean": rounded(mean),
        "half_width": pytest.approx(half_width, rel=5e-3),
        "n": n,
        "seeds": [rounded(value) for value in degrees],
    }
    assert point["values"]["hops_max"] == {"mean": 12345679, "half_width": None, "n": 1, "seeds": [None, 12345679]}
    assert set(point["values"]) == {
        *(name for name in study.measures if name not in ("degrees", "topic_delay_ms_mean", "topic_subscribers")),
        "degrees 3",
        "topic_delay_ms_mean 2",
    }
    assert content["claims"] == [{"claim": "hops", "verdict": "met", "value": "1.000 (4 points)"}]


def test_a_record_that_was_read_is_written_as_it_was(tmp_path):
    study = load(tmp_path)
    path = write(tmp_path, study, results_of(study))
    assert encode_record(study, read_record(path, study)) == path.read_text()
    assert max(map(len, path.read_text().splitlines())) < 1500


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e12, 1e12), st.integers(-(10**9), 10**9)), min_size=2, max_size=2))
def test_a_value_keeps_six_digits_or_is_whole(values):
    with TemporaryDirectory() as folder:
        study = load(Path(folder))
        results = [
            replace(run, rows=() if value is None else (Row("hops_max", None, None, value),))
            for run, value in zip(results_of(study)[:2], values, strict=True)
        ]
        whole = [*results, *(replace(run, rows=()) for run in results_of(study)[2:])]
        path = write(Path(folder), study, whole)
        read = read_record(path, study).results
        point = json.loads(path.read_bytes())["points"][0]["values"]["hops_max"]
    assert point["n"] == sum(value is not None for value in values)
    for run, value in zip(read, values, strict=False):
        kept = [row.value for row in run.rows if row.measure == "hops_max"]
        assert kept == [] if value is None else kept == [value if value == int(value) else rounded(value)]


def test_the_source_sums_up_the_runs_and_refuses_other_code(tmp_path):
    study = load(tmp_path)
    results = results_of(study)
    results[1] = replace(results[1], cpu_s=70.0)
    results[2] = replace(results[2], key=results[0].key)  # points with the same experiment share a run
    source = make_source(study, "command", ORIGIN, results)
    assert (source.seeds, source.runs, source.largest_process_mib) == ((4, 7), 7, 307)
    assert (source.cpu_s, source.longest_run_s) == (pytest.approx(70 + 6 * 12.44, abs=0.1), 70.0)
    with pytest.raises(StaleRecord, match="other code"):
        make_source(study, "command", ORIGIN, [*results[1:], replace(results[0], code="0ther")])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[10, 20]", "[10, 21]"),
        ("[10, 20]", "[10, 20, 30]"),
        ('"random.degree" = 5', '"random.degree" = 6'),
        ("[4, 7]", "[4]"),
        ("[4, 7]", "[4, 7, 8]"),
        ("[4, 7]", "[4, 8]"),
        ("window_s = 10", "window_s = 11"),
        ('kind = "uniform"', 'kind = "uniform"\ndelay_ms = 3'),
    ],
)
def test_a_record_of_other_runs_is_stale(old, new, tmp_path):
    study = load(tmp_path)
    path = write(tmp_path, study, results_of(study))
    assert old in STUDY
    with pytest.raises(StaleRecord):
        read_record(path, load(tmp_path, STUDY.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[10, 20]", "[10, 20, 30]"),
        ("[10, 20]", "[8, 10, 15, 20]"),
        ("[4, 7]", "[4, 7, 8]"),
        ("[4, 7]", "[3, 4, 5, 7]"),
        ('[[variants]]\nname = "two"', '[[variants]]\nname = "new"\n[[variants]]\nname = "two"'),
    ],
)
def test_a_study_that_has_got_more_runs_keeps_its_record_in_part(old, new, tmp_path):
    study = load(tmp_path)
    path = write(tmp_path, study, results_of(study))
    assert old in STUDY
    grown = load(tmp_path, STUDY.replace(old, new))
    with pytest.raises(StaleRecord):
        read_record(path, grown)
    read = read_record(path, grown, partial=True)
    assert read == read_record(path, study)
    text = path.read_text()
    again = encode_record(grown, read)
    assert json.loads(again)["points"] == json.loads(text)["points"]
    path.write_text(again)
    assert read_record(path, grown, partial=True) == read


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[10, 20]", "[10, 30]"),
        ("[4, 7]", "[4]"),
        ("[4, 7]", "[4, 8]"),
        ('"random.degree" = 5', '"random.degree" = 6'),
        ("window_s = 10", "window_s = 11"),
    ],
)
def test_a_record_in_part_is_of_the_same_experiments(old, new, tmp_path):
    study = load(tmp_path)
    path = write(tmp_path, study, results_of(study))
    with pytest.raises(StaleRecord):
        read_record(path, load(tmp_path, STUDY.replace(old, new, 1)), partial=True)


def test_the_places_of_a_study_are_those_of_its_points(tmp_path):
    study = load(tmp_path)
    assert list(places_of(study)) == [point.at for point in points_of(study)]
    assert list(places_of(study)[0]) == ["variant", "nodes"]
    kept = keep_points(study, [{"variant": "two", "nodes": 20}])
    assert places_of(kept) == ({"variant": "two", "nodes": 20},)
    assert keep_points(study, places_of(study)) == study


def test_points_that_are_not_recorded_count_as_missing():
    where = {"variant": "a"}
    claim = ClaimSpec("it is", "so", "hops_mean", Bounds(2), where)
    recorded = [{"variant": "a", "nodes": nodes} for nodes in (1, 2)]
    assert judge(claim, RUNS, recorded).verdict == "met"
    more = judge(claim, RUNS, [*recorded, {"variant": "a", "nodes": 3}, {"variant": "b", "nodes": 4}])
    assert (more.verdict, more.missing) == ("partly met", 1)
    elsewhere = judge(replace(claim, where={"variant": "d"}), RUNS, [{"variant": "d", "nodes": 1}])
    assert elsewhere.verdict == "not measured", "and not judged by the values of others"


def test_texts_and_the_order_of_keys_make_no_record_stale(tmp_path):
    study = load(tmp_path)
    path = write(tmp_path, study, results_of(study))
    changed = STUDY.replace('title = "Degrees"', 'title = "Others"').replace("digits = 6", "digits = 1")
    changed = changed.replace("window_s = 10\nsnapshots_s = [1, 2]", "snapshots_s = [1, 2]\nwindow_s = 10")
    assert read_record(path, load(tmp_path, changed)) == read_record(path, study)


def test_numbers_that_a_study_shows_since_are_missing_and_others_stay(tmp_path):
    study = load(tmp_path)
    path = write(tmp_path, study, results_of(study))
    changed = load(
        tmp_path,
        STUDY.replace("by = 3", "by = 4")
        .replace('"hops_max", "diameter"', '"diameter"')
        .replace('    "hops_max",\n', ""),
    )
    read = read_record(path, changed)
    rows = dict(make_table(changed.table[0], read.results).rows)
    assert "hops_max" not in {row.measure for run in read.results for row in run.rows}
    assert rows["hops_mean", "one, plain"][0].ours.mean == rounded(sum((4 / 9, 1 + 7 / 9)) / 2 * 1e-3)
    lacking = STUDY.replace('"hops_max", "diameter"', '"hops_max", "hops_p99", "diameter"').replace(
        'of = { of = "hops_mean", at = 20 }\nover_at = 10', 'of = "hops_p99"'
    )
    study = load(tmp_path, lacking)
    assert judge(study.claim[0], read_record(path, study).results).verdict == "not measured"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"points": 3}', '{"command": "x"}'])
def test_another_file_is_no_record(text, tmp_path):
    study = load(tmp_path)
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(StaleRecord, match="no record"):
        read_record(tmp_path / "x.json", study)


def git(folder: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def commit_all(folder: Path) -> str:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "x")
    return git(folder, "rev-parse", "HEAD")


def test_the_origin_is_the_last_commit_of_the_code_and_clean_only_if_nothing_of_it_changed(tmp_path):
    git(tmp_path, "init", "--quiet")
    for name in CODE:
        path = tmp_path / (name if name.endswith(".py") else f"{name}/module.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    study = tmp_path / "studies" / "small.toml"
    study.parent.mkdir()
    study.write_text("1")
    commit = commit_all(tmp_path)
    (tmp_path / "docs.md").write_text("1")
    commit_all(tmp_path)
    (tmp_path / "docs.md").write_text("2")

    def found() -> tuple[str, bool]:
        origin = find_origin(study, ORIGIN.machine, tmp_path)
        assert origin.machine == ORIGIN.machine
        return origin.commit, origin.clean

    assert found() == (commit[:12], True)
    for path in (study, tmp_path / "peer" / "module.py", tmp_path / "peer" / "new.py"):
        before = path.read_bytes() if path.exists() else None
        path.write_text("2")
        assert found() == (commit[:12], False)
        path.unlink() if before is None else path.write_bytes(before)
    (tmp_path / "peer" / "module.py").write_text("3")
    assert found() == (commit[:12], False)
    assert (commit_all(tmp_path)[:12], True) == found()


def test_without_git_the_commit_is_unknown(tmp_path):
    origin = find_origin(tmp_path / "small.toml", None, tmp_path)
    assert (origin.commit, origin.clean) == ("", False)


def run(variant: str, nodes: int, value: float | None, *moments: tuple[float, float]) -> Result:
    rows = [Row("hops_mean", moment, None, number) for moment, number in moments]
    rows += [] if value is None else [Row("hops_mean", None, None, value)]
    return Result(f"{variant}-{nodes}", {"variant": variant, "nodes": nodes}, 1, "", 1.0, 1, tuple(rows))


RUNS = [
    run("a", 1, 2.0, (10.0, 4.0), (20.0, 5.0)),
    run("a", 2, 3.0),
    run("b", 1, 4.0),
    run("b", 2, 4.0),
    run("c", 1, None),
]


@pytest.mark.parametrize(
    ("where", "over", "met", "partly", "shown"),
    [
        ({"variant": "a", "nodes": 1}, {}, Bounds(at_most=2), None, ("2.00", "≤ 2", "met")),
        ({"variant": "a", "nodes": 1}, {}, Bounds(at_most=1.99), None, ("2.00", "≤ 1.99", "not met")),
        ({"variant": "a", "nodes": 1}, {}, Bounds(2, 2), None, ("2.00", "≥ 2 and ≤ 2", "met")),
        ({"variant": "a", "nodes": 1}, {}, Bounds(2.01), Bounds(2), ("2.00", "≥ 2.01; partly: ≥ 2", "partly met")),
        ({"variant": "a", "nodes": 1}, {}, Bounds(3), Bounds(2.5), ("2.00", "≥ 3; partly: ≥ 2.5", "not met")),
        ({"variant": "a"}, {}, Bounds(2), None, ("2.00 to 3.00 (2 points)", "≥ 2", "met")),
        ({"variant": "a"}, {}, Bounds(2.5), None, ("2.00 to 3.00 (2 points)", "≥ 2.5", "partly met")),
        ({"variant": "a"}, {}, Bounds(9), Bounds(2.5), ("2.00 to 3.00 (2 points)", "≥ 9; partly: ≥ 2.5", "not met")),
        ({"variant": "a"}, {}, Bounds(3), Bounds(2.5), ("2.00 to 3.00 (2 points)", "≥ 3; partly: ≥ 2.5", "not met")),
        (
            {"variant": "a"},
            {},
            Bounds(3),
            Bounds(2, 2),
            ("2.00 to 3.00 (2 points)", "≥ 3; partly: ≥ 2 and ≤ 2", "partly met"),
        ),
        ({}, {}, Bounds(2), None, ("2.00 to 4.00 (4 points, 1 without a value)", "≥ 2", "partly met")),
        ({"variant": "a", "nodes": 1}, {"variant": "c"}, Bounds(0), None, ("-", "≥ 0", "not measured")),
        ({"variant": "a", "nodes": 2}, {"variant": "b"}, Bounds(0.75, 0.75), None, ("0.75 = 3 / 4",)),
        ({"variant": "a"}, {"variant": "b"}, Bounds(0.5), None, ("0.50 to 0.75 (2 points)", "≥ 0.5", "met")),
        ({"variant": "a"}, {"nodes": 1}, Bounds(1, 1.5), None, ("1.00 to 1.50 (2 points)",)),
        ({"variant": "c"}, {}, Bounds(1), None, ("-", "≥ 1", "not measured")),
        ({"variant": "b", "nodes": 1}, {"variant": "c"}, Bounds(1), None, ("-", "≥ 1", "not measured")),
    ],
)
def test_a_claim_is_met_at_all_points_or_in_part_or_not(where, over, met, partly, shown):
    claim = ClaimSpec("it is", "so (II)", "hops_mean", met, where, over, partly=partly, digits=2)
    text, paper, *rest = show_finding(judge(claim, RUNS))
    assert (text, paper) == ("it is", "so (II)")
    assert tuple(rest[: len(shown)]) == shown


def test_a_claim_may_compare_two_moments():
    claim = ClaimSpec("it is", "so", Shown("hops_mean", at=20), Bounds(1.2), {"variant": "a", "nodes": 1}, over_at=10)
    assert show_finding(judge(claim, RUNS))[2:] == ("1.250 = 5 / 4", "≥ 1.2", "met")


def test_a_claim_may_compare_two_measures():
    runs = [replace(each, rows=(*each.rows, Row("hops_max", None, None, 8.0))) for each in RUNS[:2]]
    claim = ClaimSpec("it is", "so", "hops_max", Bounds(4), {"variant": "a", "nodes": 1}, over_of="hops_mean")
    assert show_finding(judge(claim, runs))[2:] == ("4.000 = 8 / 2", "≥ 4", "met")
    claim = ClaimSpec("it is", "so", "hops_max", Bounds(2), {"nodes": 1}, over_of="hops_mean", over_at=10)
    assert show_finding(judge(claim, runs))[2:] == ("2.000 = 8 / 4", "≥ 2", "met")


def test_a_claim_shows_the_intervals_of_its_means():
    runs = [*RUNS, replace(RUNS[0], seed=2, rows=(Row("hops_mean", None, None, 2.02),))]
    claim = ClaimSpec("it is", "so", "hops_mean", Bounds(1), {"variant": "a", "nodes": 1}, digits=2)
    assert show_finding(judge(claim, runs))[2] == "2.01 ± 0.13"
    over = msgspec.structs.replace(claim, over={"variant": "b"})
    assert show_finding(judge(over, runs))[2] == "0.50 = 2.01 ± 0.13 / 4"
    close = [*RUNS, replace(RUNS[0], seed=2, rows=(Row("hops_mean", None, None, 2.0002),))]
    assert show_finding(judge(over, close))[2] == "0.50 = 2.000 ± 0.001 / 4"
