"""What becomes of the folder in which the peers of an emulated run work."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from harness.commands import run
from harness.deployment.agents import files_of
from harness.errors import TestbedError
from harness.reserve import RESERVE_FILE, Reserve
from harness.testbeds.emulated import sandbox, testbed
from harness.testbeds.emulated.work_folder import WORK_FOLDER, remove_work_folder

SHIPPED = ("packages/0123/peer/trace/__init__.py", "token/agent.json", "token/overlay.json", "token/schedule.jsonl")


def write(run_dir: Path, *names: str) -> None:
    for name in names:
        path = run_dir / WORK_FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_work_folder_without_files_of_peers_is_removed(tmp_path: Path) -> None:
    write(tmp_path, *SHIPPED)
    (tmp_path / WORK_FOLDER / "token/trace").mkdir()
    remove_work_folder(tmp_path)
    remove_work_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", files_of("m", (3,)))
def test_files_that_were_not_collected_stay(name: str, tmp_path: Path) -> None:
    write(tmp_path, *SHIPPED, f"token/{name}")
    remove_work_folder(tmp_path)
    assert (tmp_path / WORK_FOLDER / "token" / name).exists()


@pytest.mark.parametrize("left", [(), ("token/trace/0.jsonl",)])
def test_the_testbed_keeps_what_was_not_collected(
    left: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("hosts", "read_throttling", "find_groups", "_plane_counters", "_plane_problems"):
        monkeypatch.setattr(testbed, name, MagicMock())
    closing = object.__new__(testbed.EmulatedTestbed)
    closing.__dict__ |= {
        f"_{part}": MagicMock() for part in ("hosts", "prober", "pressure", "sshd", "throttling", "watchdog")
    }
    closing.__dict__ |= {"_plane": MagicMock(complaints=[]), "_keep_awake": None, "_captured": None, "_problems": []}
    closing.__dict__ |= {"_run_dir": tmp_path, "_disk": tmp_path / WORK_FOLDER}
    write(tmp_path, *SHIPPED, *left)
    closing.close()
    assert (tmp_path / WORK_FOLDER).exists() == bool(left)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), TestbedError("run it", "signal 9 ended it")])
@pytest.mark.parametrize("kept", [(), ("token/trace/0.jsonl",)])
def test_a_stage_that_is_killed_leaves_no_reserve_and_no_empty_work_folder(
    end: BaseException, kept: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_killed(*_: object, keep: list[Path]) -> int:
        Reserve(keep[0])
        write(keep[0], *SHIPPED, *kept)
        raise end

    monkeypatch.setattr(sandbox, "run", be_killed)
    with pytest.raises(type(end)):
        run._run_stage("emulated", tmp_path)
    assert not (tmp_path / RESERVE_FILE).exists()
    assert (tmp_path / WORK_FOLDER).exists() == bool(kept)
