"""Results files: what they say of a sweep, how a stale one is found, and the documents that show them."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.studies import documents
from harness.studies.claims import judge, show_finding
from harness.studies.form import Bounds, ClaimSpec, Shown, Study
from harness.studies.loader import load_study
from harness.studies.measures import SEEN
from harness.studies.point_run import Row
from harness.studies.points import points_of, seeds_of
from harness.studies.results_file import RESULTS_FILE, StaleResults, read_results_file, write_results_file
from harness.studies.store import ROOT, Result, SweepSpec
from harness.studies.tables import make_table

STUDY = """
name = "small"
seeds = [4, 7]
measures = ["degree_mean", "degrees", "delivery_ratio", "hops_mean", "hops_max", "diameter"]
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
    "hops_mean",
    "hops_max",
]
[[claim]]
text = "hops"
paper = "fewer"
of = { of = "hops_mean", at = 20 }
over_at = 10
met = { at_most = 1 }
"""


def load(folder: Path, text: str = STUDY) -> Study:
    path = folder / "small.toml"
    path.write_text(text)
    return load_study(path)


def results_of(study: Study) -> list[Result]:
    """Results with different numbers in every row; a run lacks a measure."""
    made = []
    for point in points_of(study):
        for seed in seeds_of(study):
            value = len(made) + seed / 9
            rows = [
                *(Row("degree_mean", at_s, None, value + at_s) for at_s in (1.0, 2.0, 39.5)),
                *(Row("degrees", at_s, degree, 7) for at_s in (1.0, 39.5) for degree in (2, 3)),
                *(Row("diameter", at_s, None, 10 * at_s + seed) for at_s in (1.0, 39.5)),
                *(Row("delivery_ratio", moment, None, 1 / (value + 3)) for moment in (None, 10.0, 20.0)),
                *(Row("hops_mean", moment, None, value * 1e-3) for moment in (None, 10.0, 20.0)),
                *([Row("hops_max", None, None, 12345678 + len(made))] if len(made) else []),
            ]
            made.append(Result(str(len(made)), point.at, seed, "c0de", 12.4, 300 + seed, tuple(rows)))
    return made


def write(folder: Path, study: Study, results: list[Result]) -> Path:
    source = str(ROOT / "playbooks" / "studies" / "small.toml")
    versions = {"trellis revision": "abcdef", "python": "3.11.2"}
    write_results_file(folder, SweepSpec(study, source, "c0de", ("--set seeds=[4, 7]",), versions), results)
    return folder / RESULTS_FILE


def test_a_results_file_has_every_single_number_to_six_digits_and_those_over_time_that_are_shown(tmp_path):
    study = load(tmp_path)
    results = results_of(study)
    read = read_results_file(write(tmp_path, study, results), study)
    assert [(run.at, run.seed, run.cpu_s, run.peak_mib) for run in read.results] == [
        (run.at, run.seed, 12, run.peak_mib) for run in results
    ]
    for ours, theirs in zip(read.results, results, strict=True):
        moving = {"delivery_ratio", "hops_mean", "diameter"}
        expected = {
            (row.measure, row.moment, row.by): row.value
            for row in theirs.rows
            if row.by in (None, 3) and (row.moment is None or row.measure in moving)
        }
        last = {(row.measure, 0.0, row.by): row.value for row in theirs.rows if row.measure in SEEN - moving}
        expected |= {place: value for place, value in last.items() if place[2] in (None, 3)}
        got = {(row.measure, row.moment, row.by): row.value for row in ours.rows}
        assert len(got) == len(ours.rows)
        assert got == {place: pytest.approx(value, rel=5e-6) for place, value in expected.items()}
        assert [row.value for row in ours.rows if row.measure == "hops_max"] == [
            row.value for row in theirs.rows if row.measure == "hops_max"
        ]
    for table in study.table:
        for (labels, ours), (names, theirs) in zip(
            make_table(table, read.results).rows, make_table(table, results).rows, strict=True
        ):
            assert labels == names
            assert [entry.ours.mean for entry in ours] == pytest.approx([entry.ours.mean for entry in theirs], rel=1e-5)


def test_the_head_says_where_the_numbers_come_from(tmp_path):
    study = load(tmp_path)
    results = results_of(study)
    results[1] = replace(results[1], cpu_s=70.0)
    results[2] = replace(results[2], key=results[0].key)  # points with the same experiment share a run
    head = read_results_file(write(tmp_path, study, results), study).head
    assert head["command"] == "./trellis sweep playbooks/studies/small.toml --set seeds=[4, 7]"
    assert (head["commit"], head["seeds"], head["runs"]) == ("abcdef", "4, 7", "8")
    assert head["processor time"] == f"{70 + 6 * 12.4:.0f} s, the longest run 70 s"
    assert head["largest process"] == "307 MiB"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[10, 20]", "[10, 21]"),
        ("[10, 20]", "[10, 20, 30]"),
        ('"random.degree" = 5', '"random.degree" = 6'),
        ("[4, 7]", "[4]"),
        ("[4, 7]", "[4, 7, 8]"),
        ("window_s = 10", "window_s = 11"),
        ('kind = "uniform"', 'kind = "uniform"\ndelay_ms = 3'),
        ('"hops_max", "diameter"]', '"hops_max", "diameter", "hops_p99"]'),
        ("by = 3", "by = 4"),
        ('"first diameter"', '"diameter"'),
        ("[4, 7]", "[4, 8]"),
    ],
)
def test_a_file_of_other_runs_is_stale(old, new, tmp_path):
    study = load(tmp_path)
    path = write(tmp_path, study, results_of(study))
    assert old in STUDY
    with pytest.raises(StaleResults):
        read_results_file(path, load(tmp_path, STUDY.replace(old, new)))


def test_texts_and_the_order_of_keys_make_no_file_stale(tmp_path):
    study = load(tmp_path)
    path = write(tmp_path, study, results_of(study))
    changed = STUDY.replace('title = "Degrees"', 'title = "Others"').replace("digits = 6", "digits = 1")
    changed = changed.replace("window_s = 10\nsnapshots_s = [1, 2]", "snapshots_s = [1, 2]\nwindow_s = 10")
    assert read_results_file(path, load(tmp_path, changed)) == read_results_file(path, study)


def test_another_file_is_no_results_file(tmp_path):
    study = load(tmp_path)
    (tmp_path / "x.md").write_text("| a |\n| --- |\n| b |\n")
    with pytest.raises(StaleResults, match="no results file"):
        read_results_file(tmp_path / "x.md", study)


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
        ({"variant": "a", "nodes": 1}, {"variant": "c"}, Bounds(0), None, ("-", "≥ 0", "-")),
        ({"variant": "a", "nodes": 2}, {"variant": "b"}, Bounds(0.75, 0.75), None, ("0.75 = 3 / 4",)),
        ({"variant": "a"}, {"variant": "b"}, Bounds(0.5), None, ("0.50 to 0.75 (2 points)", "≥ 0.5", "met")),
        ({"variant": "a"}, {"nodes": 1}, Bounds(1, 1.5), None, ("1.00 to 1.50 (2 points)",)),
        ({"variant": "c"}, {}, Bounds(1), None, ("-", "≥ 1", "-")),
        ({"variant": "b", "nodes": 1}, {"variant": "c"}, Bounds(1), None, ("-", "≥ 1", "-")),
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


def test_a_page_shows_the_claims_and_tables_of_a_results_file_between_its_marks(tmp_path, monkeypatch):
    study = load(tmp_path)
    (tmp_path / "results").mkdir()
    page = "a\n\n<!-- results: small -->\n\n<!-- end of results -->\n\nb\n"
    monkeypatch.setattr(documents, "STUDIES", tmp_path)
    assert documents.fill(page, tmp_path / "results") == page
    write(tmp_path, study, results_of(study)).rename(tmp_path / "results" / "small.md")
    filled = documents.fill(page, tmp_path / "results")
    assert filled.startswith("a\n\n<!-- results: small -->\n\n[small](../../playbooks/studies/small.toml), seeds 4, 7,")
    assert filled.endswith(" |\n\n<!-- end of results -->\n\nb\n")
    assert "| hops | fewer | 1.000 to 1.000 (4 points) | ≤ 1 | met |\n\n**Degrees**\n\n| measure | variant |" in filled
    assert documents.fill(filled, tmp_path / "results") == filled


COMMITTED = sorted(documents.RESULTS.glob("*.md"))


def test_the_documents_show_the_committed_results() -> None:
    named = []
    for page in documents.PAGES:
        committed = page.read_text(encoding="utf-8")
        assert documents.fill(committed) == committed, "run: python -m harness.studies.documents"
        named += re.findall(r"<!-- results: (.*) -->", committed)
    assert set(named) >= {path.stem for path in COMMITTED}, "every results file is in a document"
    assert all((documents.STUDIES / f"{name}.toml").exists() for name in named)
    assert len(set(named)) == len(named)
