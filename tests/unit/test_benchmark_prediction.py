"""What the benchmark of predicted processors says of its runs."""

from pathlib import Path

import pytest

from benchmarks._calibrated_runs import make_run
from benchmarks.prediction import Row, describe, summarise
from harness.planning.processors import REFERENCE_WORK_US


def row(hosts: int, frames_per_s: float, speed: float, verdict: str = "valid", ratio: float = 1.0) -> Row:
    """A run that needs 0.1 processors, 2 ms per host and 100 us per frame, on a machine that is slower by ``speed``."""
    measured = (0.1 + hosts * 0.002 + frames_per_s * 1e-4) * speed
    work_us = speed * REFERENCE_WORK_US
    return Row(f"run of {hosts}", hosts, frames_per_s, work_us, measured / ratio, measured, measured < 0.6, verdict)


ROWS = [row(10, 100, 1.0), row(20, 1000, 2.0), row(60, 300, 0.5, "suspect", 1.5), row(60, 6000, 1.0, "invalid", 0.9)]
UNKNOWN = Row("programs", 20, 180.0, REFERENCE_WORK_US, None, 0.4, None, "valid")


def test_ratios_and_verdicts_are_counted_and_constants_fitted() -> None:
    found = summarise([*ROWS, UNKNOWN])
    assert (found["predicted"], found["within_a_quarter"], found["verdicts_right"]) == (4, 3, 3)
    assert [found[name] for name in ("run_ms", "host_ms", "frame_us")] == pytest.approx([100, 2, 100])


def test_fewer_runs_than_constants_fit_nothing() -> None:
    assert set(summarise([*ROWS[:3], UNKNOWN])) == {"predicted", "within_a_quarter", "verdicts_right"}


def test_a_run_that_is_not_predicted_has_a_row() -> None:
    lines = describe([*ROWS, UNKNOWN], summarise(ROWS)).splitlines()
    assert lines[5].split() == ["20", "180", f"{REFERENCE_WORK_US:.0f}", "-", "0.40", "-", "-", "valid", "programs"]
    assert lines[3].split()[5:8] == ["1.50", "yes", "suspect"]


@pytest.mark.parametrize("missing", [None, "run/summary.json", "calibration.json", "calibration_after.json"])
def test_a_run_without_all_its_files_is_made_again(
    missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    (place / "run").mkdir(parents=True)
    for name in ("run/summary.json", "calibration.json", "calibration_after.json"):
        (place / name).touch()
    monkeypatch.setattr("benchmarks._calibrated_runs.measure", lambda: None)
    if missing is None:
        assert make_run(["x.toml"], place) == place
        return
    (place / missing).unlink()
    with pytest.raises(RuntimeError, match="could not be calibrated"):
        make_run(["x.toml"], place)
    assert list(place.iterdir()) == []
