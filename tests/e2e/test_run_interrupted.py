"""Ctrl-C and SIGTERM in every phase of a run: one line, an exit status, and nothing left but the run directory."""

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.machine import observe
from tests.e2e.run_experiment import QUICKLY, WITHOUT_PROMETHEUS, trellis, write_brief

pytestmark = pytest.mark.root

PHASES = {
    "boot": "plan",
    "deploy": "boot",
    "probe_before": "deploy",
    "warmup": "probe before",
    "workload": "warmup",
    "cooldown": "workload",
    "stop": "cooldown",
    "settle": "stop",
    "probe_after": "settle",
    "collect": "probe after",
}
"""The phase that is under way when the run has reported the end of another step."""

USUAL = {"boot", "deploy", "collect"}
"""The phases that are interrupted in every run of the tests: each needs other things to be ended. In the workload, a
run is terminated."""

WITHOUT_SPARK = {*(("INT", phase) for phase in USUAL), ("TERM", "workload")}
"""Usual tests, which need not wait for the start of Spark. In the others, Spark stands still when the signal comes."""

AFTER_PROMETHEUS = {"probe_after", "collect"}
"""The phases that begin when Prometheus has answered, if there is one."""

STEP = re.compile(r"[a-z0-9 ]+: [0-9.]+ s|remark: .+")

WHOLE = "is complete but not analysed; try: trellis report"
"""What the last line says of a run that has a manifest, before its directory."""


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        *(pytest.param("INT", phase, marks=() if phase in USUAL else pytest.mark.long) for phase in PHASES),
        ("TERM", "workload"),
    ],
)
def test_an_interrupt_is_one_line_and_leaves_nothing(name: str, phase: str, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    scraped = () if phase not in AFTER_PROMETHEUS else WITHOUT_PROMETHEUS
    seen = interrupt(name, PHASES[phase], tmp_path, *(QUICKLY if (name, phase) in WITHOUT_SPARK else ()), *scraped)
    what = "interrupted" if name == "INT" else "terminated"
    assert seen["status"] == 128 + signal.Signals[f"SIG{name}"]
    assert seen["left"] == {}
    *steps, line = seen["said"]
    assert all(map(STEP.fullmatch, steps)), "a short phase may end before the signal is there"
    if run_dir.exists():
        assert line.startswith(f"trellis run: {what}; {run_dir} ")
    else:
        assert line == f"trellis run: {what}"
    whole = (run_dir / "manifest.json").exists()
    assert whole == line.endswith(f"{WHOLE} {run_dir}")
    assert not whole or phase == "collect", "only this phase's end makes a run whole"
    assert not (run_dir / ".reserve").exists()
    written = [path for name in ("trace", "logs", "record") for path in run_dir.glob(f".work/*/{name}/*")]
    assert (run_dir / ".work").exists() == bool(written), "it stays for what the peers wrote, and only for that"


def test_a_run_interrupted_in_its_analysis_is_whole(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    seen = interrupt("INT", str(run_dir / "manifest.json"), tmp_path, *WITHOUT_PROMETHEUS)
    assert (seen["status"], seen["left"]) == (130, {})
    assert seen["said"][-1] == f"trellis run: interrupted; {run_dir} {WHOLE} {run_dir}"
    assert not (run_dir / "summary.json").exists()


def interrupt(signal: str, moment: str, folder: Path, *options: str) -> dict[str, Any]:
    """Send a signal to a brief run at a moment; what was seen on its machine."""
    return observe(signal, moment, trellis("run", write_brief(folder), *options, "--out", folder / "run"), folder)
