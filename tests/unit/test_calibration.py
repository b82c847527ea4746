"""A calibration is kept for some minutes of one start of a machine, and measured again otherwise. None is measured."""

import os
from pathlib import Path

import msgspec
import pytest

from harness.machine import calibration
from harness.machine.calibration import KEPT_S, Calibration, Kept, calibrate
from metrics.processors import usable_processors

HAS = usable_processors()
KEPT, MEASURED = Calibration(50.0, 0.1, True, HAS), Calibration(70.0, 0.2, False, HAS)
NOW_S = 1e9


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(calibration.CALIBRATE_VARIABLE, raising=False)
    monkeypatch.setattr(calibration, "measure", lambda: MEASURED)
    monkeypatch.setattr(calibration.time, "time", lambda: NOW_S)
    return tmp_path / "trellis" / "calibration.json"


def keep(file: Path, **changes: object) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    kept = msgspec.structs.replace(Kept(KEPT, boot_id, os.uname().release, NOW_S), **changes)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.encode(kept))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, KEPT),
        ({"at_s": NOW_S - KEPT_S}, KEPT),
        ({"at_s": NOW_S - KEPT_S - 1}, MEASURED),
        ({"at_s": NOW_S + 1}, MEASURED),
        ({"boot_id": "another start"}, MEASURED),
        ({"kernel": "another kernel"}, MEASURED),
        ({"calibration": Calibration(50.0, 0.1, True, HAS + 1)}, MEASURED),
    ],
)
def test_a_calibration_is_used_that_is_of_this_machine_and_not_old(
    file: Path, changes: dict[str, object], found: Calibration
) -> None:
    keep(file, **changes)
    assert calibrate() == found


def test_what_was_measured_is_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calibrate() == MEASURED
    monkeypatch.setattr(calibration, "measure", lambda: None)
    assert calibrate() == MEASURED
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"calibration": 3}'])
def test_a_damaged_file_is_measured_anew(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    assert calibrate() == MEASURED
    assert msgspec.json.decode(file.read_bytes(), type=Kept).calibration == MEASURED


def test_a_folder_that_cannot_be_written_changes_nothing(file: Path) -> None:
    file.parent.write_text("a file where the folder should be")
    assert calibrate() == MEASURED


def test_a_failed_measurement_is_no_calibration(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "measure", lambda: None)
    assert calibrate() is None
    assert not file.exists()


def test_the_environment_leaves_the_machine_uncalibrated(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(file)
    monkeypatch.setenv(calibration.CALIBRATE_VARIABLE, "0")
    assert calibrate() is None


def test_the_process_that_measures_prints_a_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast this machine is says nothing; that both figures are there, does."""
    found = calibration.measure()
    assert found is not None
    assert found.work_us > 0 and found.late_ms > 0 and found.processors == HAS
