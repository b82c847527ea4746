"""``trellis watch`` of runs that are over, or that die: processes of their own, which end by themselves."""

import http.client
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from harness.live.opening import live_page
from harness.live.snapshot import Snapshot
from tests.e2e.run_experiment import ROOT, trellis
from tests.recorded_run import extract_run
from tests.replayed_run import ReplayedRun


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_run(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def analysed(recorded: Path, tmp_path: Path) -> Path:
    run_dir = tmp_path / "run"
    shutil.copytree(recorded, run_dir)
    summary = {
        "verdict": "suspect", "reasons": ["Somebody slept."], "checks": [], "run_id": "run", "name": "small", "seed": 7,
        "protocol": "stan", "headline": {"messages_published": 50, "deliveries_expected": 200, "delivery_ratio": 0.5},
    }  # fmt: skip
    (run_dir / "summary.json").write_text(json.dumps(summary))
    return run_dir


def start(*words: str | Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        trellis("watch", *words), cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate()
    return process.returncode, out, err


def decode(line: str | bytes) -> Snapshot:
    return msgspec.json.decode(line, type=Snapshot)


def test_a_run_that_is_over_is_shown_once(analysed: Path) -> None:
    status, out, err = finish(start(analysed, "--json"))
    [line] = out.splitlines()
    found = decode(line)
    assert (status, err) == (3, "")
    assert found.ended is not None
    assert (found.ended.state, found.ended.verdict, found.ended.headline["messages_published"]) == (
        "analysed",
        "suspect",
        50,
    )
    assert found.ended.report is None
    assert (found.messages.published, found.messages.delivered, found.messages.expected) == (50, 100, 200)


def test_a_report_is_named_if_there_is_one(analysed: Path) -> None:
    page = analysed / "report/index.html"
    page.parent.mkdir()
    page.touch()
    ended = decode(finish(start(analysed, "--json"))[1]).ended
    assert ended is not None
    assert ended.report == str(page)


def test_its_outcome_is_printed_as_that_of_run(analysed: Path) -> None:
    status, out, err = finish(start(analysed))
    assert (status, err) == (3, "")
    assert out.startswith("the run is over; suspect; ")
    assert "verdict: suspect" in out
    assert out.splitlines()[-1] == f"no report: trellis report {analysed} writes it"


def test_a_run_without_a_summary_is_shown_without_a_verdict(recorded: Path) -> None:
    status, out, err = finish(start(recorded))
    assert (status, err) == (0, "")
    assert out.startswith("the run is over; not analysed yet; ")


def test_a_stage_that_dies_ends_the_watch(recorded: Path, tmp_path: Path) -> None:
    replayed = ReplayedRun(recorded, tmp_path / "run")
    replayed.start()
    replayed.at(2.0)
    process = start(replayed.run_dir, "--json")
    assert process.stdout is not None
    first = decode(process.stdout.readline())
    replayed.die()
    status, out, err = finish(process)
    assert first.ended is None
    last = decode(out.splitlines()[-1]).ended
    assert last is not None
    assert (status, err, last.state) == (1, "", "failed")


def test_a_damaged_run_is_refused_with_a_reason(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded, tmp_path / "run")
    (tmp_path / "run" / "overlay.json").write_text("{")
    status, _, err = finish(start(tmp_path / "run"))
    assert status == 2
    assert "overlay.json is damaged" in err


class Page:
    """A page that is served, as a program reads it."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname == "127.0.0.1"
        assert parts.port is not None
        self._place = (parts.hostname, parts.port)
        self._header = {"Authorization": f"Bearer {parse_qs(parts.query)['token'][0]}"}

    def ask(self, path: str, *, admitted: bool = True) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(*self._place)
        connection.request("GET", path, headers=self._header if admitted else {})
        return connection.getresponse()

    def follow(self) -> Iterator[Snapshot]:
        for line in self.ask("/events"):
            if line.startswith(b"data: "):
                yield decode(line.removeprefix(b"data: "))


def find_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    word, address = process.stdout.readline().split()
    assert word == "live"
    return address


@pytest.mark.parametrize("loads_first", [False, True])
def test_the_pages_server_takes_only_time_that_nobody_wants(recorded: Path, loads_first: bool) -> None:
    with live_page(recorded, stays=True, loads_first=loads_first) as page:
        assert Page(page.address).ask("/stage").status == 200
        threads = [int(task.name) for task in Path(f"/proc/{page.pid}/task").iterdir()]
        assert len(threads) > 1, "one that collects the snapshots"
        assert {os.sched_getscheduler(thread) for thread in threads} == {os.SCHED_IDLE}
        assert os.getsid(page.pid) == page.pid
        autogroup = Path(f"/proc/{page.pid}/autogroup")
        assert not autogroup.exists() or autogroup.read_text().split()[-1] == "19"


def test_a_page_that_loads_first_has_loaded_and_stepped_back_before_the_run_begins(recorded: Path) -> None:
    with live_page(recorded, stays=True, loads_first=True) as page:
        assert os.sched_getscheduler(page.pid) == os.SCHED_IDLE


def test_the_page_of_a_run_stays_if_it_is_to_be_kept(analysed: Path) -> None:
    process = start(analysed, "--page", "--keep")
    page = Page(find_address(process))
    ended = next(page.follow()).ended
    assert ended is not None
    assert ended.verdict == "suspect"
    assert page.ask("/stage").status == 200
    assert page.ask("/stage", admitted=False).status == 403
    assert process.poll() is None
    process.terminate()
    assert process.wait() == 143


def test_the_page_ends_with_the_run(recorded: Path, tmp_path: Path) -> None:
    replayed = ReplayedRun(recorded, tmp_path / "run")
    replayed.start()
    replayed.at(2.0)
    process = start(replayed.run_dir, "--page")
    snapshots = Page(find_address(process)).follow()
    assert next(snapshots).ended is None
    replayed.finish()
    *_, last = snapshots
    assert last.ended is not None
    assert last.ended.state == "not analysed"
    assert process.wait() == 0


def test_a_page_whose_command_is_killed_ends(recorded: Path, tmp_path: Path) -> None:
    replayed = ReplayedRun(recorded, tmp_path / "run")
    replayed.start()
    replayed.at(2.0)
    process = start(replayed.run_dir, "--page")
    page = Page(find_address(process))
    next(page.follow())
    process.kill()
    while _answers(page):
        time.sleep(0.1)
    replayed.die()


def _answers(page: Page) -> bool:
    try:
        page.ask("/stage").read()
    except (OSError, http.client.HTTPException):
        return False
    return True
