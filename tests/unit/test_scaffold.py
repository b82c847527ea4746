"""``trellis new``."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main

ROOT = Path(__file__).parents[2]


def test_a_new_protocol_passes_its_own_tests_and_has_a_valid_experiment_and_study(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    assert main(["new", "protocol", "push-gossip", str(folder)]) == 0
    texts = [path.read_text(encoding="utf-8") + path.name for path in folder.rglob("*") if path.is_file()]
    assert not [text for text in texts if "template" in text.lower()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for words in (
        ["-m", "pytest", "-q", "-p", "no:cacheprovider"],
        ["-m", "harness.cli", "check", "experiment.toml"],
        ["-m", "harness.cli", "check", "study.toml"],
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "12 different runs (points: 6, seeds: 3; " in done.stdout, "gossipsub has no fanout"


def test_new_prints_the_files_and_the_next_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "the mine"
    assert main(["new", "protocol", "push-gossip", str(folder)]) == 0
    files, _, rest = capsys.readouterr().out.partition("\nnext steps:\n")
    assert {Path(line) for line in files.splitlines()} == {path for path in folder.rglob("*") if path.is_file()}
    *steps, last = rest.splitlines()
    assert [shlex.split(step) for step in steps] == [
        ["cd", str(folder)],
        [sys.executable, "-m", "pytest"],
        [str(ROOT / "trellis"), "run", "experiment.toml"],
        [str(ROOT / "trellis"), "sweep", "study.toml"],
    ]
    assert os.access(ROOT / "trellis", os.X_OK)
    assert "docs/protocol-contract.md" in last


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Push", "NAME: expected lower-case words joined by '-', got 'Push'"),
        ("../push", "NAME: expected lower-case words joined by '-', got '../push'"),
        ("gossipsub", "NAME: 'gossipsub' is the name of a protocol or a module; choose another one"),
        ("json", "NAME: 'json' is the name of a protocol or a module; choose another one"),
        ("class", "NAME: 'class' is the name of a protocol or a module; choose another one"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, problem: str
) -> None:
    assert main(["new", "protocol", name, str(tmp_path / "mine")]) == 2
    assert capsys.readouterr().err == f"trellis new: {problem}\n"
    assert not (tmp_path / "mine").exists()


def test_a_folder_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("mine")
    assert main(["new", "protocol", "push-gossip", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"trellis new: {tmp_path}: exists and is not an empty folder\n"
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
