"""A sweep that is killed at random moments and resumed shows what an uninterrupted one shows."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import msgspec
import pytest

from harness.studies.store import Result, Store
from tests.planted import plant_modules

ROOT = Path(__file__).parents[2]

STUDY = """
name = "small"
measures = ["degree_mean", "degrees", "delivery_ratio", "propagation_delay_ms_mean"]
seeds = 4
[experiment.underlay]
kind = "unit-square"
hosts = 40
[experiment.workload]
publish_rate_per_s = 50
duration_s = 2
[grid]
random.degree = [2, 3, 4]
[[table]]
name = "table"
title = "Delay by degree"
rows = ["measure"]
columns = "random.degree"
measures = ["propagation_delay_ms_mean", "delivery_ratio", "degree_mean"]
digits = 6
[[figure]]
name = "figure"
title = "Delay by degree"
x = "random.degree"
y = ["propagation_delay_ms_mean"]
[quick]
grid = { "random.degree" = [2] }
"""

RUNS = 12

SHOWN = ("table.md", "table.csv", "results.csv")


def sweep(study: Path, out: Path, *options: str, cwd: Path = ROOT) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-P", "-m", "harness.cli", "sweep", str(study), "--out", str(out), *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(argv, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def run_until(process: subprocess.Popen[bytes], out: Path, count: int) -> None:
    """Let it run until so many results are there."""
    while len(results(out)) < count:
        assert process.poll() is None or len(results(out)) >= count, process.communicate()[1].decode()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.01)


def finish(process: subprocess.Popen[bytes]) -> str:
    """Wait for it, and return what it printed on standard error."""
    _, words = process.communicate(timeout=600)
    assert process.returncode == 0, words.decode()
    return words.decode()


def shown(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in SHOWN]


def results(out: Path) -> dict[str, int]:
    """Every finished run, with the instant at which its result was written."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "runs").glob("*.json")}


def processes_in(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in words:
                found.append(words)
    return found


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def uninterrupted(study: Path) -> Path:
    out = study.parent / "uninterrupted"
    finish(sweep(study, out, "--master", "here"))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.long)])
def test_killed_at_random_moments_it_shows_the_same(study, uninterrupted, kills):
    out, draws, seen, at_work = study.parent / f"killed-{kills}", Random(20), {}, 0
    for _ in range(kills):
        process = sweep(study, out, "--master", "here")
        run_until(process, out, min(len(seen) + draws.randrange(2), RUNS))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=draws.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        now = results(out)
        assert seen.items() <= now.items(), "a finished run is never repeated"
        seen = now
        at_work += len(seen) < RUNS
    assert at_work or kills == 1, "on a busy machine one may be killed while it writes the page, or find all done"
    finish(sweep(study, out, "--master", "here"))
    assert len(results(out)) == RUNS
    assert seen.items() <= results(out).items()
    assert shown(out) == shown(uninterrupted)
    assert not processes_in(out)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("resumed", [("--master", "here"), ()])
def test_spark_gives_the_same_and_a_kill_of_it_leaves_no_process(study, uninterrupted, tmp_path, resumed):
    """Spark makes half of the runs; the others, too, or this process: the results go together.

    It is used in a folder with planted modules, none of which is imported.
    """
    out, stranger = tmp_path / "spark", tmp_path / "stranger"
    stranger.mkdir()
    imported = plant_modules(stranger)
    process = sweep(study, out, cwd=stranger)
    run_until(process, out, RUNS // 2)
    before = results(out)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 300  # the kernel ends them, but not in the same instant
    while (left := processes_in(out)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    finish(sweep(study, out, *resumed, cwd=stranger))
    assert before.items() <= results(out).items()
    assert shown(out) == shown(uninterrupted)
    assert not imported.exists(), imported.read_text()


def test_results_of_another_state_of_the_code_are_computed_again_unless_they_are_welcome(study, uninterrupted):
    before = results(uninterrupted)
    changed = uninterrupted / "runs" / min(before)
    content = msgspec.json.decode(changed.read_bytes())
    changed.write_bytes(msgspec.json.encode({**content, "code": "of yesterday"}))
    page = uninterrupted / "index.html"
    finish(sweep(study, uninterrupted, "--master", "here", "--any-code"))
    assert "some runs are of other versions: " in page.read_text()
    assert "of yesterday" in page.read_text()
    told = finish(sweep(study, uninterrupted, "--master", "here"))
    assert f"{RUNS} runs (points: 3, seeds: 4)\n" in told
    assert f"{RUNS - 1} of {RUNS} are done already, 1 to do\n" in told
    assert msgspec.json.decode(changed.read_bytes())["code"] == content["code"]
    assert "other versions" not in page.read_text()
    others = {name: at_ns for name, at_ns in before.items() if name != changed.name}
    assert others.items() <= results(uninterrupted).items()


def test_a_run_that_fails_is_named_and_the_others_are_kept(tmp_path):
    text = STUDY.split("[[table]]")[0].replace('kind = "unit-square"\nhosts = 40', 'kind = "matrix"')
    path = tmp_path / "small.toml"
    path.write_text(text.replace("random.degree = [2, 3, 4]", '"underlay.path" = ["there.csv", "missing.csv"]'))
    rows = [["0" if row == column else "20" for column in range(8)] for row in range(8)]
    (tmp_path / "there.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    process = sweep(path, tmp_path / "out", "--master", "here")
    _, words = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "4 runs failed" in words.decode()
    assert "missing.csv: No such file" in words.decode()
    assert len(results(tmp_path / "out")) == 4
    assert not (tmp_path / "out" / "index.html").exists()


def test_a_folder_with_a_link_is_refused_and_nothing_is_written_through_it(study, tmp_path):
    kept, folder = tmp_path / "kept", tmp_path / "sweep"
    kept.write_text("mine")
    folder.mkdir()
    (folder / "study.toml").symlink_to(kept)
    process = sweep(study, folder)
    errors = process.communicate()[1].decode()
    assert process.returncode == 2
    assert "study.toml is a symbolic link" in errors and errors.count("\n") == 1
    assert (kept.read_text(), [each.name for each in folder.iterdir()]) == ("mine", ["study.toml"])


def test_results_and_pages_take_the_place_of_a_link(tmp_path):
    """One that somebody makes while a sweep lasts."""
    kept, runs = tmp_path / "kept", tmp_path / "runs"
    kept.write_text("mine")
    runs.mkdir()
    (runs / "key.json.part").symlink_to(kept)
    (runs / "key.json").symlink_to(kept)
    Store(tmp_path).write(Result("key", {}, 1, "code", 0.0, 0, ()))
    assert kept.read_text() == "mine"
    assert not (runs / "key.json").is_symlink()
