"""What ``.ci/run`` selects: all tests and examples on demand, some of them otherwise."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

from tests.e2e.test_run_interop import LIBRARIES
from tests.examples import examples, long_unless

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("profile", "expected"), [("all", [1, 3, 40]), ("few", [1, 1, 1])])
def test_the_profile_scales_the_examples_of_a_property_that_says_how_many(profile: str, expected: list[int]) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert [examples(number) for number in (1, 3, 40)] == expected
    finally:
        settings.load_profile(before)


def test_what_is_not_usual_is_long() -> None:
    usual, other = long_unless({1}, [1, 2])
    assert usual == 1
    assert other == pytest.param(2, marks=pytest.mark.long)
    with pytest.raises(AssertionError, match=r"usual, but not among the values: \[3\]"):
        long_unless({1, 3}, [1, 2])


def test_each_file_of_the_lists_is_there_and_in_one_list() -> None:
    """Otherwise pytest would refuse the list, or a test would run twice."""
    text = (ROOT / ".ci/run").read_text(encoding="utf-8")
    lists = text[text.index("units=(") : text.index('begin "types"')]
    script = f'{lists}\nprintf "%s\\n" "${{listed[@]}}"'
    listed = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [path for path in listed if not (ROOT / path).exists()] == []
    files = [file for path in listed for file in (sorted((ROOT / path).glob("**/test_*.py")) or [ROOT / path])]
    assert len(files) > 250
    assert [file for file in set(files) if files.count(file) > 1] == []


def test_what_a_run_of_both_libraries_needs_is_fetched() -> None:
    """Its test is skipped where they are not."""
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    [fetched] = [line.partition("./trellis fetch ")[2] for line in lines if "fetch" in line]
    assert fetched.partition(" #")[0].split() == [*LIBRARIES]


def test_an_unknown_option_is_refused() -> None:
    done = subprocess.run(["bash", ROOT / ".ci/run", "--fast"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "usage: bash .ci/run [--all]\n")
