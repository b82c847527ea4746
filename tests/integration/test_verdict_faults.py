"""The faults of docs/verdict.md that are made in a copy of a recorded run: each turns the verdict of a sound one."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks._edited_runs import copy_run
from benchmarks._faults import LIVE, RECORDED
from metrics import summary, tables
from metrics.checks import RULES
from metrics.rundir import FAILED, NOT_JUDGED, VALID, Summary
from metrics.rundir.hashes import digest, indented
from tests.examples import long_unless
from tests.fabricate import Fabrication

PAGE = Path(__file__).parents[2] / "docs" / "verdict.md"
FABRICATED = {name: fault for name, fault in RECORDED.items() if fault.found_by != ("host_capture_packets",)}
"""Made-up runs have no captures in hosts."""
ELSEWHERE = {"no trace", "half a trace"}
"""Faults left to a run of all tests, since ``test_edited_traces`` has traces that are missing or cut off."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound run with the hashes of its documents."""
    fabrication = Fabrication(seed=5, nodes=8, topics=3, messages=120, retransmit_ratio=0, relays=True)
    run_dir = fabrication.write(tmp_path_factory.mktemp("recorded") / "run")
    plan, manifest = (json.loads((run_dir / name).read_bytes()) for name in ("plan.json", "manifest.json"))
    files = {"underlay": "underlay.json", "overlay": "overlay.json", "schedule": "schedule.jsonl"}
    manifest["hashes"] = {name: digest([(run_dir / file).read_bytes()]) for name, file in files.items()}
    manifest["hashes"]["plan"] = digest([indented(plan | {"hashes": {}})])
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    return run_dir


@pytest.fixture
def judged(recorded: Path, tmp_path: Path) -> Callable[[Callable[[Path], object]], Summary]:
    """Edit a copy of the run, and judge it."""

    def judge(edit: Callable[[Path], object]) -> Summary:
        run_dir = copy_run(recorded, tmp_path / "run")
        assert edit(run_dir), "the fault was there"
        tables.build(run_dir)
        return summary.write(run_dir)

    return judge


def test_the_run_is_valid_without_a_fault(judged: Callable[[Callable[[Path], object]], Summary]) -> None:
    found = judged(lambda _: True)
    assert (found.verdict, found.reasons) == (VALID, ())


@pytest.mark.parametrize("name", long_unless(FABRICATED.keys() - ELSEWHERE, FABRICATED))
def test_a_fault_is_found_by_one_of_its_checks(
    name: str, judged: Callable[[Callable[[Path], object]], Summary]
) -> None:
    fault = FABRICATED[name]
    found = judged(lambda run_dir: fault.edit(run_dir, fault.sizes[0]))
    assert found.verdict != VALID
    named = {check.name for check in found.checks if check.outcome in (FAILED, NOT_JUDGED)}
    assert named & set(fault.found_by), named


def test_every_fault_names_checks_that_there_are() -> None:
    names = {rule.name for rule in RULES}
    for fault in (*RECORDED.values(), *LIVE.values()):
        assert set(fault.found_by) <= names
        assert (fault.sizes and "{:g}" in fault.text) or fault.sizes == (0,)


def test_the_page_has_every_fault() -> None:
    rows = re.findall(r"^\| (.+?) \| (?:run|copy) \| (\d+) of (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    texts = [text for text, _, _ in rows]
    assert texts == [fault.text.format(fault.sizes[0]) for fault in (*RECORDED.values(), *LIVE.values())]
    assert len(rows) >= 25
    assert [text for text, found, runs in rows if found != runs] == []
