"""``trellis watch`` and ``run --live`` refuse what they cannot show before anything begins."""

import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from harness import cli
from harness.live import opening
from tests.e2e.run_experiment import write_brief
from tests.recorded_run import extract_run

INSTALL = "try: pip install 'trellis-testbed[live]', in a checkout '.[live]'"


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == "uvicorn" else ModuleSpec(name, None)

    monkeypatch.setattr(opening, "find_spec", find)


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert cli.main([*map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.rstrip("\n")


def test_run_says_what_to_install_before_it_begins(
    tmp_path: Path, without_extra: None, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, "run", write_brief(tmp_path), "--out", tmp_path / "run", "--live")
    assert said == f"trellis run: --live needs uvicorn; {INSTALL}"
    assert not (tmp_path / "run").exists()


def test_watch_needs_the_extra_for_the_page_alone(
    tmp_path: Path, without_extra: None, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, "watch", tmp_path, "--page")
    assert said == f"trellis watch: --page needs uvicorn; {INSTALL}"
    assert "not a run directory" in refusal(capsys, "watch", tmp_path)


def test_a_run_on_another_machine_is_not_shown_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "run", write_brief(tmp_path), "--live", "--on", "machines.toml")
    assert "--live shows runs of this machine" in said


def test_a_simulation_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "run", write_brief(tmp_path), "--out", tmp_path / "run", "--live", "--testbed", "simulated")
    assert said == 'trellis run: --live: testbed = "simulated" shows nothing before the end of a run'
    assert not (tmp_path / "run").exists()


def test_a_simulation_that_goes_on_is_not_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = extract_run(tmp_path)
    (run_dir / "manifest.json").unlink()
    plan = json.loads((run_dir / "plan.json").read_text())
    plan["experiment"]["testbed"] = "simulated"
    (run_dir / "plan.json").write_text(json.dumps(plan))
    assert "shows nothing before the end of a run" in refusal(capsys, "watch", run_dir)


@pytest.mark.parametrize("words", [["--keep"], ["--port", "4711"], ["--keep", "--json"]])
def test_options_of_the_page_need_the_page(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "add --page" in refusal(capsys, "watch", tmp_path, *words)


@pytest.mark.parametrize("port", ["65536", "-1", "x"])
def test_a_port_is_a_number(tmp_path: Path, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--port" in refusal(capsys, "watch", tmp_path, "--page", f"--port={port}")
