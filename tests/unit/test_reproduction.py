"""The pages of the reproduced papers: they are what their records give, and say what is missing or outdated."""

import json
import re
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from msgspec.structs import replace

from harness.cli import main
from harness.studies.loader import load_study
from harness.studies.measures import MEASURES
from harness.studies.point_run import simulate_point
from harness.studies.record import RECORD_FILE, StaleRecord, encode_record
from harness.studies.results import reduce_run
from harness.studies.store import jobs_of, study_code
from playbooks.reproduction.__main__ import main as reproduce
from playbooks.reproduction.mutations import read_checks
from playbooks.reproduction.pages import (
    CHANGED,
    INDEX_FILE,
    NOT_HERE,
    draw_figures,
    draw_svg,
    drawn_content,
    figure_content,
    marked,
    read_recorded,
    show_index,
    show_page,
    stale_marks,
    write_pages,
)
from playbooks.reproduction.papers import HERE, PAPERS_FILE, Paper, Place, paper_of, read_papers
from playbooks.reproduction.rechecks import Recheck, keep_recheck, read_rechecks

PAPERS = read_papers()
STUDIES = sorted(path.stem for path in HERE.studies.glob("*.toml"))

AGAIN = "run: python -m playbooks.reproduction"

papers = pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.name)


@papers
def test_a_page_is_what_its_records_give(paper: Paper) -> None:
    """Except for the marks of results whose code has changed: code may change without the pages."""
    page = (HERE.pages / f"{paper.name}.md").read_text(encoding="utf-8")
    studies = [read_recorded(paper, name) for name in paper.studies]
    assert page == show_page(paper, studies, marked(page), read_checks(paper), read_rechecks(paper)), AGAIN


@papers
def test_a_record_has_the_claims_means_and_layout_that_its_study_gives(paper: Paper) -> None:
    for name in paper.studies:
        recorded = read_recorded(paper, name)
        if recorded.record is not None:
            text = HERE.record(paper, name).read_text(encoding="utf-8")
            assert text == encode_record(recorded.study, recorded.record), AGAIN


@papers
def test_a_claim_that_is_not_met_has_a_reason(paper: Paper) -> None:
    """Beside the claim, or in the text of its study."""
    for recorded in (read_recorded(paper, name) for name in paper.studies):
        missed = [each.claim.text for each in recorded.findings if each.verdict in ("partly met", "not met")]
        given = [each.claim.text for each in recorded.findings if each.claim.why or each.claim.irreproducible]
        assert recorded.study.discussion or set(missed) <= set(given), recorded.study.name


@papers
def test_the_figure_of_a_page_shows_its_record_and_all_others_are_named(paper: Paper) -> None:
    drawn = {path.name: drawn_content(path) for path in (HERE.pages / paper.name).glob("*.svg")}
    page = " ".join((HERE.pages / f"{paper.name}.md").read_text(encoding="utf-8").split())
    expected = {}
    for name in paper.studies:
        recorded = read_recorded(paper, name)
        for figure in () if recorded.record is None else recorded.study.figure:
            assert figure.title in page
            if f"{name}-{figure.name}" == paper.figure:
                expected[f"{paper.figure}.svg"] = figure_content(figure, recorded.results)
    assert drawn == expected, AGAIN
    assert bool(expected) == bool(paper.figure)
    assert not paper.figure or f"]({paper.name}/{paper.figure}.svg)" in page


def test_the_index_counts_what_the_records_give() -> None:
    committed = (HERE.pages / INDEX_FILE).read_text(encoding="utf-8")
    assert committed == show_index(PAPERS), AGAIN


def test_every_study_of_a_paper_is_on_one_page_and_every_record_is_of_a_study() -> None:
    listed = [name for paper in PAPERS for name in paper.studies]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {name for name in STUDIES if load_study(HERE.studies / f"{name}.toml").reproduces}
    records = set(HERE.pages.glob("*/*.json"))
    assert records <= {HERE.record(paper, name) for paper in PAPERS for name in paper.studies}
    assert all(bool(part.study) != bool(part.reason) for paper in PAPERS for part in paper.parts)


def test_a_recorded_number_is_repeated() -> None:
    # Code that changes these numbers on purpose records the study again (docs/studies.md, recorded results).
    paper, name = paper_of("topiary-example"), "topiary-example"
    recorded = read_recorded(paper, name)
    assert recorded.record is not None
    run = recorded.results[0]
    job = next(job for job in jobs_of(recorded.study, HERE.studies) if (job.at, job.seed) == (run.at, run.seed))
    again = replace(run, rows=tuple(simulate_point(job.experiment, job.run, job.measures, HERE.studies)))
    for measure in ("subscriber_distance_mean", "degree_mean", "topics_partitioned", "delivery_ratio"):
        assert reduce_run(run, measure) == pytest.approx(reduce_run(again, measure), rel=1e-5)


SMALL = """
name = "small"
reproduces = "A paper, Table 1"
description = "Two seeds."
discussion = "So it is."
seeds = 2
measures = ["degree_mean", "degrees"]
[experiment]
protocol = "random"
[experiment.underlay]
kind = "uniform"
hosts = 8
[run]
length_s = 2
[grid]
random.degree = [1, 2]
[[table]]
name = "table-1"
title = "Degrees"
rows = ["measure"]
columns = "random.degree"
measures = ["degree_mean"]
[[figure]]
name = "figure-1"
title = "A figure"
x = "random.degree"
y = ["degree_mean"]
[[figure]]
name = "figure-2"
title = "Another figure"
x = "random.degree"
y = ["degree_mean"]
note = "A note."
[[claim]]
text = "degree"
paper = "more, Table 1"
of = "degree_mean"
where = { "random.degree" = 2 }
over = { "random.degree" = 1 }
met = { at_least = 9 }
why = "There are few nodes."
[quick]
seeds = 1
"""

PAPER = """
[[paper]]
name = "sample"
title = "Sample"
source = "Somebody: *Something*."
protocol = "../protocols/sample.md"
figure = "small-figure-1"
text = "A text."
parts = [
    { what = "Table 1", study = "small" },
    { what = "Figure 1", study = "later" },
    { what = "Figure 2", reason = "needs a satellite" },
]
"""


def make_place(folder: Path) -> Place:
    place = Place(folder / "pages", folder / "studies")
    place.pages.mkdir(parents=True)
    place.studies.mkdir()
    (place.studies / "small.toml").write_text(SMALL)
    (place.studies / "later.toml").write_text(SMALL.replace('"small"', '"later"'))
    (place.pages / PAPERS_FILE).write_text(PAPER)
    return place


def simulate(place: Place, out: Path, *options: str) -> Path:
    """Carry out the sweep of the small study into a folder."""
    assert main(["sweep", str(place.studies / "small.toml"), "--master", "here", "--out", str(out), *options]) == 0
    return out


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pages and studies, one of which has been recorded."""
    folder = tmp_path_factory.mktemp("original")
    place = make_place(folder)
    assert reproduce(["--record", str(simulate(place, folder / "out"))], place) == 0
    return folder


@pytest.fixture
def place(original: Path, tmp_path: Path) -> Place:
    """A copy of it."""
    copytree(original, tmp_path, dirs_exist_ok=True)
    return Place(tmp_path / "pages", tmp_path / "studies")


def test_a_recorded_sweep_is_on_the_page_and_its_repetition_changes_only_times(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join((place.pages / "sample.md").read_text(encoding="utf-8").split())
    assert text.startswith("# Sample: ")
    assert "| Table 1 | [small](#small) | seeds 1 to 2 | 1 not met | none |" in text
    assert "| Figure 1 | [later](#later) | not recorded yet | 1 not measured | none |" in text
    assert "| Figure 2 | - | needs a satellite |" in text
    assert "**Not recorded yet.** Study: [later](../../playbooks/studies/later.toml), seeds 1 to 2." in text
    found = r"[\d.]+ ± [\d.]+"
    assert re.search(
        rf"\| degree \| more, Table 1 \| [\d.]+ \([\d.-]+ to [\d.]+\) = {found} / {found} \| ≥ 9 \| not met \|", text
    )
    assert "- **degree**: There are few nodes." in text and "So it is." in text and "A text." in text
    assert f"**A figure** ![{MEASURES['degree_mean'].label} by random.degree](sample/small-figure-1.svg)" in text
    assert f"{NOT_HERE} - Another figure: {MEASURES['degree_mean'].label} by random.degree. A note." in text
    assert "./trellis sweep small.toml" in text and "with changes that were not committed" in text
    assert "[Sample](sample.md) | 1 of 2 | 1 not met, 1 not measured | none |" in (place.pages / INDEX_FILE).read_text()
    first = json.loads((place.pages / "sample" / "small.json").read_bytes())
    assert reproduce(["--record", str(simulate(place, tmp_path / "again"))], place) == 0
    assert f"recorded: {place.pages / 'sample' / 'small.json'}" in capsys.readouterr().out
    second = json.loads((place.pages / "sample" / "small.json").read_bytes())
    assert [point["values"] for point in first["points"]] == [point["values"] for point in second["points"]]
    assert first["claims"] == second["claims"]


def test_the_page_compares_readings_of_the_paper_by_its_numbers(place: Place) -> None:
    """A number that two studies judge is one row; where no study judges a reading by a number, the cell is empty."""
    assert "Which reading" not in (place.pages / "sample.md").read_text()
    claim = SMALL[SMALL.index("[[claim]]") : SMALL.index("why =")]
    first = SMALL.replace("why =", 'number = "degree"\nreading = "first"\nwhy =')
    (place.studies / "small.toml").write_text(first)
    more = claim.replace("more, Table 1", "ten") + 'number = "size"\nreading = "second"\n'
    second = (
        first.replace("first", "second")
        .replace('"small"', '"later"')
        .replace("more, Table 1", "the same")
        .replace("[quick]", more + "[quick]")
    )
    (place.studies / "later.toml").write_text(second)
    write_pages(read_papers(place), place)
    page = (place.pages / "sample.md").read_text()
    value = next(line for line in page.splitlines() if line.endswith("| ≥ 9 | not met |")).split(" | ")[2]
    table = [line for line in page[: page.index('<a id="small">')].splitlines() if line.startswith("|")]
    assert table[-6:] == [
        "| number | the paper | first | second |",
        "| --- | --- | --- | --- |",
        f"| degree | more, Table 1 | {value}: not met | -: not measured |",
        "| size | ten |  | -: not measured |",
        "| numbers met |  | 0 of 1 | 0 of 0 |",
        "| numbers met, at least partly |  | 0 of 1 | 0 of 0 |",
    ]


def test_statements_count_once_ours_apart_and_the_chosen_reading_decides(place: Place) -> None:
    claim = SMALL[SMALL.index("[[claim]]") : SMALL.index("[quick]")]
    low = claim.replace("at_least = 9", "at_least = -9")
    same = [each.replace("why =", 'number = "degree"\nwhy =') for each in (claim, low)]
    read = [each.replace("why =", f'reading = "{name}"\nwhy =') for each, name in zip(same, ("a", "b"), strict=True)]
    ours = low.replace("why =", "ours = true\nwhy =").replace('"degree"', '"a question of ours"')
    reported = low.replace("met = { at_least = -9 }", "reported = true")
    excused = claim.replace("why = ", "irreproducible = ").replace("few nodes", "no such nodes")
    study = place.studies / "small.toml"
    study.write_text(SMALL.replace(claim, "\n".join((*read, low, ours, reported, excused))))
    head, paper = "seeds 1 to 2 |", place.pages / PAPERS_FILE

    def counted() -> str:
        write_pages(read_papers(place), place)
        page = (place.pages / "sample.md").read_text()
        return next(line for line in page.splitlines() if "[small](#small)" in line).partition(head)[2]

    assert counted() == " 1 met, 1 partly met, 1 irreproducible, 1 reported | 1 met |"
    page = (place.pages / "sample.md").read_text()
    ours_from = page.index("**Beyond the paper**")
    assert page.index("**Claims of the paper**") < page.index("not judged | reported |") < ours_from
    assert page.index("| a question of ours |") > ours_from
    assert "- **degree**: There are no such nodes." in page
    assert (
        "| 1 met, 1 partly met, 1 irreproducible, 1 reported, 1 not measured | 1 met |"
        in (place.pages / INDEX_FILE).read_text()
    )
    paper.write_text(PAPER.replace("parts = [", 'reading = "b"\nreading_text = "We read it as b."\nparts = ['))
    assert counted() == " 2 met, 1 irreproducible, 1 reported | 1 met |"
    assert "We read it as b." in (place.pages / "sample.md").read_text()


def test_a_changed_number_changes_the_page_and_the_figure(place: Place) -> None:
    page = place.pages / "sample.md"
    before, figure = page.read_text(), place.pages / "sample" / "small-figure-1.svg"
    drawn = figure.read_bytes()
    (place.pages / "sample" / "small-old.svg").write_text("<svg/>")
    path = place.pages / "sample" / "small.json"
    content = json.loads(path.read_bytes())
    content["points"][1]["values"]["degree_mean"]["seeds"] = [7, 7.5]
    path.write_text(json.dumps(content))
    [paper] = read_papers(place)
    studies = [read_recorded(paper, name, place) for name in paper.studies]
    assert show_page(paper, studies, set()) != before
    assert figure_content(studies[0].study.figure[0], studies[0].results) != drawn_content(figure)
    write_pages([paper], place)
    assert "7.25 ± " in page.read_text()
    assert '"mean": 7.25' in path.read_text()
    assert figure.read_bytes() != drawn
    assert [each.name for each in figure.parent.glob("*.svg")] == [figure.name]


def test_results_of_other_code_are_marked_once_the_pages_are_written_again(place: Place) -> None:
    page = place.pages / "sample.md"
    assert CHANGED not in page.read_text()
    path = place.pages / "sample" / "small.json"
    [paper] = read_papers(place)
    code = study_code(load_study(place.studies / "small.toml"))
    path.write_text(path.read_text().replace(code, "0ther"))
    assert list(stale_marks(place)) == ["small"]
    studies = [read_recorded(paper, name, place) for name in paper.studies]
    assert show_page(paper, studies, marked(page.read_text())) == page.read_text(), "no reason to fail"
    write_pages([paper], place)
    assert page.read_text().count(CHANGED) == 1
    assert marked(page.read_text()) == {"small"}
    assert list(stale_marks(place)) == []


def test_recorded_runs_that_are_made_again_are_on_the_page(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """What is on the page is of this record: another record of the study has none until runs of it are made again."""
    page, path = place.pages / "sample.md", place.pages / "sample" / "small.json"
    assert reproduce(["--recheck", "small", "--minutes", "1"], place) == 0
    assert "rechecked: " in capsys.readouterr().out
    text = " ".join(page.read_text().split())
    assert re.search(r"at most 1 min of processor time in all: 4, with \d+ recorded numbers\. \*\*All are as", text)
    content = json.loads(path.read_bytes())
    content["points"][1]["values"]["degree_mean"]["seeds"] = [7, 7.5]
    path.write_text(json.dumps(content))
    assert reproduce(["--recheck", "small"], place) == 0
    text = " ".join(page.read_text().split())
    assert "**In 2 of these runs, numbers differ**: random.degree = 2, seed = " in text
    assert re.search(r"seed = 1: degree_mean: recorded 7, now [\d.]+", text)
    assert re.search(r"seed = 2: degree_mean: recorded 7\.5, now [\d.]+", text)
    write_pages(read_papers(place), place)
    assert "Runs made again" in page.read_text()
    content["points"][1]["values"]["degree_mean"]["seeds"] = [7, 8.5]
    path.write_text(json.dumps(content))
    write_pages(read_papers(place), place)
    assert "Runs made again" not in page.read_text()
    assert reproduce(["--recheck", "later"], place) == 2
    assert "later.json: No such file" in capsys.readouterr().err


def test_a_recheck_counts_what_it_does_not_show(tmp_path: Path) -> None:
    place, paper = make_place(tmp_path), read_papers(make_place(tmp_path / "other"))[0]
    found = Recheck("small", "", "abc", True, "2026-11-30", minutes=2, runs=9, numbers=18, differing=tuple("abcde"))
    keep_recheck(paper, found, place)
    keep_recheck(paper, replace(found, study="later", runs=1, clean=False, differing=()), place)
    read = read_rechecks(paper, place)
    assert str(read["small"]).endswith("**In 5 of these runs, numbers differ**: a; b; c; and 2 more.")
    assert str(read["later"]) == (
        "Runs made again on 2026-11-30 with commit `abc`, **with changes that were not committed**, drawn at random "
        "with at most 2 min of processor time in all: 1, with 18 recorded numbers. **All are as recorded.**"
    )
    keep_recheck(paper, replace(found, differing=()), place)
    assert list(read_rechecks(paper, place)) == ["later", "small"]


def test_a_record_of_another_grid_is_refused(place: Place) -> None:
    study = place.studies / "small.toml"
    study.write_text(study.read_text().replace("hosts = 8", "hosts = 9"))
    with pytest.raises(StaleRecord, match="run the sweep again"):
        write_pages(read_papers(place), place)


def test_the_page_says_what_is_not_recorded_of_a_study_that_has_grown(place: Place) -> None:
    study = place.studies / "small.toml"
    grown = study.read_text().replace("degree = [1, 2]", "degree = [1, 2, 3]").replace("seeds = 2", "seeds = 5", 1)
    study.write_text(grown.replace('where = { "random.degree" = 2 }\nover = { "random.degree" = 1 }\n', ""))
    write_pages(read_papers(place), place)
    page = " ".join((place.pages / "sample.md").read_text().split())
    assert "seeds 1 to 2, in part |" in page
    assert "**Recorded in part**: 2 of 3 points, with seeds 1 to 2; the study has seeds 1 to 5." in page
    assert "(2 points, 1 without a value)" in page
    assert json.loads((place.pages / "sample" / "small.json").read_bytes())["claims"][0]["value"] in page


def test_a_study_is_recorded_beside_one_that_must_be_recorded_again(
    original: Path, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = place.pages / "sample" / "small.json"
    recorded.rename(place.pages / "sample" / "later.json")
    other = place.studies / "later.toml"
    other.write_text(other.read_text().replace("hosts = 8", "hosts = 9"))
    assert reproduce(["--record", swept(original, tmp_path / "x", place.studies / "small.toml")], place) == 1
    said = capsys.readouterr()
    assert f"recorded: {recorded}" in said.out
    assert "the pages are not all written" in said.err and "run the sweep again" in said.err
    assert recorded.exists()


@pytest.mark.parametrize("option", ["--quick", "--seeds=1", "--set=seeds=[1]", "--any-code"])
def test_only_a_full_study_is_recorded(
    option: str,
    original: Path,
    place: Place,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each sweep has what the command writes before and after the runs, and the runs and pages of the whole study."""
    made = ignore_patterns("sweep.json", "study.toml", RECORD_FILE)
    monkeypatch.setattr(
        "harness.commands.sweep.run_spark",
        lambda module, folder, *_: copytree(original / "out", folder, ignore=made, dirs_exist_ok=True),
    )
    before = (place.pages / "sample" / "small.json").read_bytes()
    assert reproduce(["--record", str(simulate(place, tmp_path / "x", option))], place) == 2
    assert "expected a sweep of the study as its file says, got one with --" in capsys.readouterr().err
    assert (place.pages / "sample" / "small.json").read_bytes() == before


def swept(original: Path, folder: Path, study: Path) -> str:
    """Return the folder of the finished sweep, as if it were one of another study."""
    copytree(original / "out", folder, dirs_exist_ok=True)
    spec = json.loads((folder / "sweep.json").read_bytes())
    spec["source"], spec["study"]["name"] = str(study), study.stem
    (folder / "sweep.json").write_text(json.dumps(spec))
    return str(folder)


def test_only_studies_of_a_paper_are_recorded(
    original: Path, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(["--record", swept(original, tmp_path / "x", tmp_path / "small.toml")], place) == 2
    assert "expected a sweep of a study in" in capsys.readouterr().err
    assert reproduce(["--record", swept(original, tmp_path / "x", place.studies / "other.toml")], place) == 2
    assert "no paper lists the study 'other'" in capsys.readouterr().err
    assert reproduce(["--record", str(tmp_path / "studies")], place) == 2
    assert "expected the folder of a sweep" in capsys.readouterr().err


def test_a_sweep_that_has_not_ended_is_not_recorded(
    original: Path, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder has no record, or one of the code before."""
    folder = Path(swept(original, tmp_path / "x", place.studies / "small.toml"))
    record = (folder / RECORD_FILE).read_text()
    code = json.loads(record)["code"]
    (folder / RECORD_FILE).write_text(record.replace(code, "0ther"))
    assert reproduce(["--record", str(folder)], place) == 1
    assert "the sweep has not ended; complete it: ./trellis sweep" in capsys.readouterr().err
    (folder / RECORD_FILE).unlink()
    assert reproduce(["--record", str(folder)], place) == 1


def test_all_figures_are_drawn_into_a_folder(place: Place, tmp_path: Path) -> None:
    draw_figures(read_papers(place), tmp_path / "drawn", place)
    assert reproduce(["--figures", str(tmp_path / "again")], place) == 0
    for folder in (tmp_path / "drawn", tmp_path / "again"):
        found = {path.name: path.read_bytes() for path in (folder / "sample").iterdir()}
        assert sorted(found) == ["small-figure-1.svg", "small-figure-2.svg"]
        assert found["small-figure-1.svg"] == (place.pages / "sample" / "small-figure-1.svg").read_bytes()


def test_the_same_content_is_drawn_in_the_same_way(place: Place) -> None:
    [paper] = read_papers(place)
    recorded = read_recorded(paper, "small", place)
    figure, _ = recorded.study.figure
    once = draw_svg(figure, recorded.results)
    assert once == draw_svg(figure, recorded.results)
    assert once == (place.pages / "sample" / "small-figure-1.svg").read_text()
    assert len(once) < 30_000 and "<dc:date>" not in once
    assert f"<!-- content: {figure_content(figure, recorded.results)} -->" in once


def test_the_module_lists_outdated_marks(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    path = place.pages / "sample" / "small.json"
    path.write_text(path.read_text().replace(study_code(load_study(place.studies / "small.toml")), "0ther"))
    assert reproduce(["--marks"], place) == 0
    assert capsys.readouterr().out.startswith("small: the mark on its page is out of date")
