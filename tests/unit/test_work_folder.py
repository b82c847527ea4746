"""What becomes of the folder in which the peers of an emulated run work."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from harness.commands import run
from harness.deployment.agents import files_of
from harness.errors import TestbedError
from harness.machine import sandbox
from harness.machine.disk_reserve import Reserve
from harness.testbeds.emulated import testbed
from harness.testbeds.emulated.work_folder import remove_work_folder
from metrics.rundir.files import RESERVE_FILE, WORK_FOLDER
from peer.runtime.clock import UNDILATED

SHIPPED = ("packages/0123/peer/trace/__init__.py", "token/agent.json", "token/overlay.json", "token/schedule.jsonl")


STAND_INS = (
    *("Certifier", "Pace", "PressureLog", "Prober", "Watchdog", "resolve_name"),
    *("find_groups", "make_keep_awake", "make_net", "read_throttling", "sandbox", "start_sshd"),
)
"""What the testbed is made of but for its work folder."""


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
    for name in STAND_INS:
        monkeypatch.setattr(testbed, name, MagicMock())
    monkeypatch.setattr(testbed, "WORK", tmp_path / "mounted")
    testbed.make_net.return_value.hosts = [SimpleNamespace(number=0, netns="netns", wan_ip="10.0.0.1")]
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    plan = MagicMock(placement=[SimpleNamespace(host=0, machine="m", wan_ip="10.0.0.1", ctl_ip="10.1.0.1")])
    plan.experiment.verdict.lateness_p99_ms = 0.5
    plan.experiment.testbed, plan.experiment.plane = "emulated", "userspace"
    emulated = testbed.EmulatedTestbed(MagicMock(plan=plan, changes=()), run_dir, 0, UNDILATED)
    emulated.boot()
    write(run_dir, *SHIPPED, *left)
    emulated.close()
    assert (run_dir / WORK_FOLDER).exists() == bool(left)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), TestbedError("run it", "signal 9 ended it")])
@pytest.mark.parametrize("kept", [(), ("token/trace/0.jsonl",)])
def test_a_stage_that_is_killed_leaves_no_reserve_and_no_empty_work_folder(
    end: BaseException, kept: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_killed(*_: object, keep: list[Path], **_given: object) -> int:
        Reserve(keep[0])
        write(keep[0], *SHIPPED, *kept)
        raise end

    monkeypatch.setattr(sandbox, "run", be_killed)
    with pytest.raises(type(end)):
        run.perform_stage("emulated", tmp_path)
    assert not (tmp_path / RESERVE_FILE).exists()
    assert (tmp_path / WORK_FOLDER).exists() == bool(kept)
