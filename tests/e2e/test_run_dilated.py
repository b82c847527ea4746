"""A brief run at half its speed: it takes twice as long, and all that it writes is in virtual time.

``tests/conformance/test_time_dilation.py`` compares dilated runs with runs at their true speed.
"""

import pytest

from tests.e2e.run_experiment import IN_PROCESS, PATIENT, WITHOUT_PROMETHEUS, Finished, finish, start, write_brief

pytestmark = pytest.mark.root

DILATION = 2
DURATION_S = 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("dilated")
    options = (*IN_PROCESS, *WITHOUT_PROMETHEUS, *PATIENT, "--set", f"time_dilation={DILATION}")
    words = (*options, "--out", folder / "run", "--json")
    return Finished(folder / "run", finish(start("run", write_brief(folder), *words)))


def test_every_message_is_delivered(run: Finished) -> None:
    assert run.summary["headline"]["delivery_ratio"] == 1


def test_phases_last_as_planned_in_virtual_time(run: Finished) -> None:
    workload = next(phase for phase in run.manifest["phases"] if phase["name"] == "workload")
    assert workload["start_ns"] == run.manifest["zero_ns"]
    assert workload["end_ns"] - workload["start_ns"] == DURATION_S * 10**9


def test_an_instant_leads_back_to_real_time(run: Finished) -> None:
    """The last phase ends, by its own instant, when the manifest is written."""
    assert run.manifest["time_dilation"] == DILATION
    last_ns = max(phase["end_ns"] for phase in run.manifest["phases"])
    ended_s = (last_ns * DILATION + run.manifest["epoch_offset_ns"]) / 1e9
    assert ended_s == pytest.approx((run.run_dir / "manifest.json").stat().st_mtime, abs=10)


def test_the_data_plane_reports_every_virtual_second(run: Finished) -> None:
    inside = [
        line
        for line in run.lines("dataplane.jsonl")
        if 0 <= line["at_ns"] - run.manifest["zero_ns"] < DURATION_S * 10**9
    ]
    assert len(inside) == pytest.approx(DURATION_S, abs=1)


def test_the_report_says_that_it_was_slower(run: Finished) -> None:
    page = (run.run_dir / "report" / "index.html").read_text()
    assert f"{DILATION} times slower than reported" in page
