"""Checks of claims by small changes of the protocols: the list fits the code, and what fails is kept and shown."""

import ast
import json
from pathlib import Path

import pytest

from harness.errors import ExperimentError
from harness.studies.code_hash import ROOT
from playbooks.reproduction.__main__ import main as reproduce
from playbooks.reproduction.mutations import (
    MOST,
    MUTATIONS_FILE,
    Check,
    Mutation,
    change,
    check_claims,
    copy_code,
    fails,
    keep_checks,
    read_checks,
    read_mutations,
    show_checks,
)
from playbooks.reproduction.papers import PAPERS_FILE, Paper, Place, read_papers

LISTED = [(paper, mutation) for paper in read_papers() for mutation in read_mutations(paper)]
PAPER = Paper("sample", "Sample", "S.", "../protocols/sample.md", ())


@pytest.mark.parametrize("mutation", [each for _, each in LISTED], ids=lambda each: f"{each.paper}-{each.name}")
def test_a_change_fits_the_code_and_leaves_python(mutation: Mutation) -> None:
    before = (ROOT / mutation.file).read_text(encoding="utf-8")
    after = change(before, mutation)
    assert ast.dump(ast.parse(after)) != ast.dump(ast.parse(before))


def test_each_paper_has_changes_with_names_of_their_own() -> None:
    names = [(paper.name, mutation.name) for paper, mutation in LISTED]
    assert len(set(names)) == len(names)
    assert {name for name, _ in names} == {paper.name for paper in read_papers()}


def test_a_text_that_does_not_occur_once_is_refused() -> None:
    mutation = Mutation("sample", "other", "a.py", "x = 1\n", "x = 2\n")
    assert change("x = 1\ny = 1\n", mutation) == "x = 2\ny = 1\n"
    for text in ("y = 1\n", "x = 1\nx = 1\n"):
        with pytest.raises(ExperimentError, match="expected its old text once, found it"):
            change(text, mutation)


def test_more_changes_than_allowed_are_refused(tmp_path: Path) -> None:
    entry = '[[mutation]]\npaper = "sample"\nname = "x"\nfile = "a.py"\nold = "a"\nnew = "b"\n'
    place = Place(tmp_path, tmp_path)
    assert read_mutations(PAPER, place) == ()
    (tmp_path / MUTATIONS_FILE).write_text(entry * MOST + entry.replace("sample", "another"))
    assert len(read_mutations(PAPER, place)) == MOST
    (tmp_path / MUTATIONS_FILE).write_text(entry * (MOST + 1))
    with pytest.raises(ExperimentError, match=f"at most {MOST} changes of sample, got {MOST + 1}"):
        read_mutations(PAPER, place)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("met", "met", False),
        ("met", "partly met", True),
        ("met", "undecided", True),
        ("met", "not met", True),
        ("met", "not measured", True),
        ("partly met", "met", False),
        ("partly met", "not met", True),
    ],
)
def test_a_claim_fails_if_its_verdict_is_worse(before: str, after: str, expected: bool) -> None:
    assert fails(before, {"it is": after, "other": "met"}, "it is") == expected
    assert fails(before, None, "it is"), "the changed protocol does not work"


def test_a_copy_has_the_change_and_nothing_else(tmp_path: Path) -> None:
    _, mutation = LISTED[0]
    plain, changed = copy_code(tmp_path / "a", None), copy_code(tmp_path / "b", mutation)
    differ = [
        path.relative_to(plain).as_posix()
        for path in plain.rglob("*.py")
        if path.read_bytes() != (changed / path.relative_to(plain)).read_bytes()
    ]
    assert differ == [mutation.file]
    assert (plain / mutation.file).read_bytes() == (ROOT / mutation.file).read_bytes()
    again = copy_code(tmp_path / "b", mutation)
    assert (again / mutation.file).read_bytes() == (changed / mutation.file).read_bytes(), "it may be made twice"


def test_checks_are_kept_by_study_and_shown_with_those_that_nothing_fails(tmp_path: Path) -> None:
    place = Place(tmp_path, tmp_path)
    assert read_checks(PAPER, place) == ()
    assert list(show_checks(())) == []
    one = Check("one", "it is", "met", 2, ("x",), ("y",))
    two = Check("two", "it is, too", "partly met", 2, (), ("x", "y"))
    path = keep_checks(PAPER, [one, two], place)
    assert path == tmp_path / "sample.mutations.json"
    assert read_checks(PAPER, place) == (one, two)
    newer = Check("one", "it is", "met", 3, ("x", "y"), ())
    keep_checks(PAPER, [newer], place)
    assert read_checks(PAPER, place) == (two, newer)
    *_, table = show_checks(read_checks(PAPER, place))
    assert "| two | it is, too | partly met | 2 | **none** | x; y |" in table
    assert "| one | it is | met | 3 | x; y | **none** |" in table


STUDY = """
name = "small"
reproduces = "A paper, Table 1"
measures = ["degree_mean"]
[experiment]
protocol = "random"
[experiment.underlay]
kind = "uniform"
hosts = 12
[run]
length_s = 2
[grid]
random.degree = [2]
[[claim]]
text = "a degree of 4"
paper = "4"
of = "degree_mean"
met = { at_least = 3 }
[[claim]]
text = "any degree"
paper = "some"
of = "degree_mean"
met = { at_least = 0.1 }
[[claim]]
text = "a degree of 40"
paper = "40"
of = "degree_mean"
met = { at_least = 30 }
"""

MUTATIONS = """
[[mutation]]
paper = "sample"
name = "one link less"
file = "peer/protocols/random_graph/overlay.py"
old = "self.links = OutgoingLinks(state, membership, parameters.degree)"
new = "self.links = OutgoingLinks(state, membership, parameters.degree - 1)"
[[mutation]]
paper = "sample"
name = "no protocol"
file = "peer/protocols/random_graph/overlay.py"
old = "self.links = OutgoingLinks(state, membership, parameters.degree)"
new = "raise RuntimeError"
"""


def make_place(folder: Path) -> Place:
    place = Place(folder / "pages", folder / "studies")
    place.pages.mkdir(parents=True)
    place.studies.mkdir()
    (place.studies / "small.toml").write_text(STUDY)
    (place.pages / MUTATIONS_FILE).write_text(MUTATIONS)
    (place.pages / PAPERS_FILE).write_text(
        '[[paper]]\nname = "sample"\ntitle = "Sample"\nsource = "S."\nprotocol = "../protocols/sample.md"\n'
        'parts = [{ what = "Table 1", study = "small" }]\n'
    )
    return place


@pytest.mark.long
def test_the_claims_of_a_study_are_checked_and_are_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = make_place(tmp_path)
    assert reproduce(["--mutate", "small", "--out", str(tmp_path / "out")], place) == 0
    assert "checked: " in capsys.readouterr().out
    found = json.loads((place.pages / "sample.mutations.json").read_bytes())
    assert [(each["claim"], each["verdict"], each["failed_by"], each["passed_by"]) for each in found] == [
        ("a degree of 4", "met", ["one link less", "no protocol"], []),
        ("any degree", "met", ["no protocol"], ["one link less"]),
    ]
    page = (place.pages / "sample.md").read_text(encoding="utf-8")
    assert "| small | any degree | met | 1 | no protocol | one link less |" in page


@pytest.mark.long
def test_a_study_that_fails_without_a_change_is_not_checked(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    (place.studies / "small.toml").write_text(STUDY.replace('"degree_mean"]', '"no_such_measure"]'))
    [paper] = read_papers(place)
    with pytest.raises(ExperimentError, match="the sweep fails without a change"):
        check_claims(paper, "small", tmp_path / "out", seeds=1, master="here", place=place)


def test_the_options_of_checks_need_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        reproduce(["--mutate", "small"], make_place(tmp_path))
    assert "--mutate and --out need each other" in capsys.readouterr().err
