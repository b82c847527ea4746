"""The script for continuous integration: which runs it makes of which commit, and its exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "playbooks/ci/compare_commits.py"
CONDITION = ["--fail-if", "delivery_ratio < -0.01"]

TRELLIS = """#!{python}
# Notes what it was asked for. A comparison is undecided until there are NEEDED runs of each commit.
import json, pathlib, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps([pathlib.Path("version").read_text(), *words]) + "\\n")
if words[0] == "run":
    place = pathlib.Path(words[words.index("--out") + 1])
    place.mkdir(parents=True)
    if {fails!r} != place.name:
        (place / "summary.json").write_text("{{}}")
    if {repeats!r} == place.name:
        for attempt in (2, 3):
            again = place.with_name(f"{{place.name}}-attempt{{attempt}}")
            again.mkdir()
            (again / "summary.json").write_text("{{}}")
        place.with_name(f"{{place.name}}-attempt4").mkdir()  # it was cut short
    sys.exit(3)  # a suspect run, say
runs = len([word for word in words[1 : words.index("--by-folder")]]) // 2
more = {needed} - runs
outcomes = [{{"more_runs": more if more > 0 else None}}, {{"more_runs": None}}]
pathlib.Path(words[words.index("--json") + 1]).write_text(json.dumps({{"conditions": outcomes}}))
sys.exit(3 if more > 0 else {status})
"""


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for version in ("old", "new"):
        (folder / "version").write_text(version)
        git(folder, "add", "version")
        git(folder, "commit", "--quiet", "--message", version)
    return folder


def compare(
    repository: Path, *words: str, needed: int = 0, status: int = 0, fails: str = "", repeats: str = ""
) -> tuple[int, list]:
    """Call the script with a stand-in for Trellis; return its exit status and what Trellis was asked for."""
    log, trellis = repository.parent / "log", repository.parent / "trellis"
    stand_in = {"python": sys.executable, "log": str(log), "fails": fails, "repeats": repeats}
    trellis.write_text(TRELLIS.format(needed=needed, status=status, **stand_in))
    trellis.chmod(0o755)
    argv = [sys.executable, str(SCRIPT), "HEAD~1", "x.toml", "--trellis", str(trellis), *CONDITION, *words]
    done = subprocess.run(argv, cwd=repository, check=False)
    assert not (repository / "compared/checkout").exists(), "the worktree is removed"
    return done.returncode, [json.loads(line) for line in log.read_text().splitlines()]


def made(asked: list) -> list[tuple[str, str]]:
    return [(version, words[words.index("--seed") + 1]) for version, *words in asked if words[0] == "run"]


def test_both_commits_run_in_turn_with_the_same_seeds(repository: Path) -> None:
    status, asked = compare(repository, "--", "--testbed", "simulated")
    assert status == 0
    assert made(asked) == [(version, seed) for seed in "123" for version in ("old", "new")]
    assert all(words[-2:] == ["--testbed", "simulated"] for _, *words in asked if words[0] == "run")
    [compared] = [words for _, *words in asked if words[0] == "compare"]
    out = repository / "compared"
    assert compared[1:7] == [str(out / name / f"seed-{seed}") for name in ("base", "head") for seed in "123"]
    assert compared[compared.index("--baseline") + 1] == compared[1]
    assert compared[compared.index("--markdown") + 1] == str(out / "compare.md")


@pytest.mark.parametrize(("needed", "seeds", "status"), [(5, 5, 0), (40, 6, 3)])
def test_runs_that_are_needed_are_made_once(repository: Path, needed: int, seeds: int, status: int) -> None:
    found, asked = compare(repository, "--most-seeds", "6", needed=needed)
    assert found == status
    assert len(made(asked)) == 2 * seeds
    assert sum(words[0] == "compare" for _, *words in asked) == 2


def test_of_a_run_that_was_repeated_the_last_attempt_counts(repository: Path) -> None:
    """``--retry-host-stalls`` keeps the attempts that stalls of the host have spoiled."""
    _, asked = compare(repository, repeats="seed-2")
    [compared] = [words for _, *words in asked if words[0] == "compare"]
    names = [f"{name}/{seed}" for name in ("base", "head") for seed in ("seed-1", "seed-2-attempt3", "seed-3")]
    assert compared[1:7] == [str(repository / "compared" / name) for name in names]


def test_a_condition_that_is_met_is_the_exit_status(repository: Path) -> None:
    assert compare(repository, status=4)[0] == 4


def test_nothing_is_compared_if_a_run_fails(repository: Path) -> None:
    status, asked = compare(repository, fails="seed-2")
    assert status == 3
    assert made(asked) == [("old", "1"), ("new", "1"), ("old", "2")]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["HEAD~1", "--trellis", "./absent"], "./absent cannot be started: No such file or directory"),
        (["no-such-commit"], "no-such-commit"),
        (["HEAD~1", "--seeds", "0"], "--seeds: expected at least 1, got 0"),
        (["HEAD~1", "--out", "version"], "--out: version is there already; name a new folder"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(repository: Path, words: list[str], problem: str) -> None:
    argv = [sys.executable, str(SCRIPT), *words[:1], "x.toml", *CONDITION, *words[1:]]
    done = subprocess.run(argv, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode not in {0, 3, 4}
    assert problem in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (repository / "compared/checkout").exists()


@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_pipelines_call_the_script_with_options_that_it_has(name: str) -> None:
    text = (ROOT / f"playbooks/ci/{name}.yml").read_text()
    assert "playbooks/ci/compare_commits.py" in text
    help_ = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout
    for option in ("--trellis", "--out", "--fail-if"):
        assert option in text
        assert option in help_
