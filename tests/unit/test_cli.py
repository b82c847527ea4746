"""The command line's frame, and the verbs that tend the checkout: test, bench, clean."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness import cli
from harness.commands import bench, clean
from harness.commands import test as test_verb

CHECKOUT = Path(__file__).parents[2]
pytest_plugins = ["pytester"]


def test_without_a_verb_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "doctor" in capsys.readouterr().out


def test_help_imports_no_verb() -> None:
    code = "import sys; from harness import cli; cli.main([]); print([m for m in sys.modules if 'commands.' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (["no-such-verb"], "trellis: there is no verb 'no-such-verb'; trellis --help lists the verbs\n"),
        (["--nope"], "trellis: unknown arguments: --nope; try: trellis --help\n"),
        (["check", "x", "--nope"], "trellis check: unknown arguments: --nope; try: trellis check --help\n"),
        (["check", "a", "b", "c"], "trellis check: takes one file at a time; call it again for b c\n"),
        (["check", "a", "b", "--nope"], "trellis check: unknown arguments: b --nope; try: trellis check --help\n"),
        (["clean", "x"], "trellis clean: unknown arguments: x; try: trellis clean --help\n"),
        (["check"], "trellis check: the following arguments are required: file; try: trellis check --help\n"),
        (
            ["run", "x", "--seed", "one"],
            "trellis run: --seed: expected an integer, got 'one'; try: trellis run --help\n",
        ),
        (
            ["import", "matrix", "x"],
            "trellis import: the following arguments are required: --out; try: trellis import matrix --help\n",
        ),
        (["check", "two\nlines"], "trellis check: two lines: No such file or directory\n"),
    ],
)
def test_a_usage_error_is_one_line(argv: list[str], printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", printed)


@pytest.mark.parametrize(("verb", "what"), cli.TAKEN_ONE_AT_A_TIME.items())
def test_a_verb_that_takes_one_thing_refuses_a_second_one(
    verb: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([verb, "a", "b"]) == 2
    assert capsys.readouterr().err == f"trellis {verb}: takes one {what} at a time; call it again for b\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["check", "x", "--seed", "7" * 5000],
        ["run", "x", "--testbed", "y" * 5000],
        ["compare", "x", "--fail-if", "z" * 5000],
        ["z" * 5000],
    ],
)
def test_a_huge_value_is_not_printed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert len(printed) < 300


def test_options_of_the_test_verb_reach_pytest_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def note(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(argv)
        return subprocess.CompletedProcess(argv, 5)

    monkeypatch.setattr(test_verb.subprocess, "run", note)
    assert cli.main(["test", "-k", "codec and not slow", "--lf", "tests/unit"]) == 5
    assert seen[0][-4:] == ["-k", "codec and not slow", "--lf", "tests/unit"]


# ---------------------------------------------------------------------------------------------------------- bench


@pytest.fixture
def benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, status in (("good", 0), ("bad", 3), ("_shared", 9)):
        (tmp_path / f"{name}.py").write_text(
            f"import sys; print('{name}', sys.argv[1:], flush=True); sys.exit({status})"
        )
    monkeypatch.setattr(bench, "BENCHMARKS", tmp_path)
    return tmp_path


def test_bench_runs_all_and_fails_when_one_fails(benchmarks: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--json"]) == 1
    captured = capfd.readouterr()
    assert captured.out.splitlines() == ["bad ['--json']", "good ['--json']"]
    assert "failed: bad" in captured.err


def test_bench_runs_the_one_named(benchmarks: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "good"]) == 0
    assert capfd.readouterr().out == "good []\n"


def test_bench_refuses_an_unknown_name(benchmarks: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "_shared"]) == 2
    assert "there are: bad, good" in capfd.readouterr().err


# ---------------------------------------------------------------------------------------------------------- clean


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("runs/a", ".venv/bin", ".ruff_cache", "harness"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("content")
    monkeypatch.setattr(clean, "CHECKOUT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        ([], set()),
        (["--runs"], {"runs"}),
        (["--venv"], {".venv"}),
        (["--caches"], {".ruff_cache"}),
        (["--all"], {"runs", ".venv", ".ruff_cache"}),
    ],
)
def test_clean_removes_what_is_named(checkout: Path, options: list[str], gone: set[str]) -> None:
    before = {path.name for path in checkout.iterdir()}
    assert cli.main(["clean", *options]) == 0
    assert {path.name for path in checkout.iterdir()} == before - gone


def test_clean_follows_no_link(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("content")
    clean.remove(checkout / "runs")
    (checkout / "runs").symlink_to(elsewhere)
    assert cli.main(["clean", "--runs"]) == 0
    assert (elsewhere / "precious").exists()
    assert not (checkout / "runs").is_symlink()


# ------------------------------------------------------------------------------------------------- skips on CI

SKIPS = {
    "call": "import pytest\ndef test_it(): pytest.skip('no tool')",
    "mark": "import pytest\n@pytest.mark.skip\ndef test_it(): ...",
    "fixture": "import pytest\n@pytest.fixture\ndef tool(): pytest.skip('no tool')\ndef test_it(tool): ...",
    "module": "import pytest\npytest.skip('no tool', allow_module_level=True)",
}


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest((CHECKOUT / "tests/conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers =\n    data: needs data\n")
    pytester.makepyfile(test_good="def test_good(): ...")
    return pytester


def test_on_ci_a_skip_fails_the_run(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.makepyfile(**{f"test_{kind}": code for kind, code in SKIPS.items()})
    monkeypatch.setenv("CI", "true")
    refused = suite.runpytest_subprocess()
    assert refused.ret == 1
    refused.assert_outcomes(passed=1, skipped=len(SKIPS))
    for kind in SKIPS:
        refused.stdout.fnmatch_lines_random([f"SKIPPED ON CI, which fails the run: test_{kind}.py*"])


@pytest.mark.long
@pytest.mark.parametrize("code", SKIPS.values(), ids=SKIPS)
def test_on_ci_a_skip_alone_fails_the_run(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    suite.makepyfile(test_skipping=code)
    monkeypatch.setenv("CI", "true")
    assert suite.runpytest_subprocess().ret == 1


def test_elsewhere_a_skip_is_none(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.makepyfile(**{f"test_{kind}": code for kind, code in SKIPS.items()})
    monkeypatch.setenv("CI", "")
    assert suite.runpytest_subprocess().ret == 0


@pytest.mark.parametrize("kind", ["mark", pytest.param("module", marks=pytest.mark.long)])
def test_on_ci_a_skip_fails_the_run_in_other_processes_too(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    suite.makepyfile(test_skipping=SKIPS[kind])
    monkeypatch.setenv("CI", "true")
    refused = suite.runpytest_subprocess("-n1")
    assert refused.ret == 1
    refused.stdout.fnmatch_lines(["SKIPPED ON CI, which fails the run: test_skipping.py*"])


def test_on_ci_other_outcomes_do_not(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.makepyfile(
        test_data="import pytest\n@pytest.mark.data\ndef test_it(data_folder): ...",
        test_xfail="import pytest\n@pytest.mark.xfail\ndef test_it(): assert False",
    )
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    done = suite.runpytest_subprocess()
    assert done.ret == 0
    done.assert_outcomes(passed=1, skipped=1, xfailed=1)


def test_runs_of_the_same_second_get_directories_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from harness.commands import run

    monkeypatch.chdir(tmp_path)
    taken = []
    for _ in range(3):
        free = run.free_run_dir("x", 7)
        free.mkdir(parents=True)
        taken.append(free)
    assert len(set(taken)) == 3
    assert all("seed7" in free.name for free in taken)


@pytest.mark.parametrize("verb", ["check", "plan"])
def test_an_experiment_is_validated_for_the_testbed_that_is_named(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.toml").write_text('name = "x"\ntestbed = "simulated"\nunderlay.hosts = 10\n')
    assert cli.main([verb, str(tmp_path / "x.toml")]) == 0
    capsys.readouterr()
    assert cli.main([verb, str(tmp_path / "x.toml"), "--testbed", "remote"]) == 2
    assert '$.inventory: missing: testbed = "remote" needs it' in capsys.readouterr().err


def test_a_study_is_validated_for_no_other_testbed(capsys: pytest.CaptureFixture[str]) -> None:
    study = CHECKOUT / "playbooks/studies/quickstart.toml"
    assert cli.main(["check", str(study), "--testbed", "emulated"]) == 2
    assert "is a study, whose file names its testbeds" in capsys.readouterr().err


def test_run_refuses_an_import_name_that_another_distribution_owns(monkeypatch: pytest.MonkeyPatch, capsys):
    from harness.commands import run

    monkeypatch.setattr(run, "current_collisions", lambda: ["peer is owned by x", "metrics is owned by y"])
    assert cli.main(["run", "no-such-file.toml"]) == 2
    assert "import names: peer is owned by x; metrics is owned by y" in capsys.readouterr().err
