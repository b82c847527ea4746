"""A run that is watched, from its page and from another terminal: the last numbers are those of the summary."""

from pathlib import Path

import msgspec
import pytest

from harness.live.snapshot import Snapshot
from tests.e2e.run_experiment import PATIENT, QUICKLY, Finished, await_step, finish, start, write_brief

pytestmark = pytest.mark.root


class Watched(Finished):
    """A finished run, the snapshots that ``watch`` printed from its workload on, and the address of the run's page."""

    def __init__(self, folder: Path) -> None:
        run_dir = folder / "run"
        process = start("run", write_brief(folder), "--out", run_dir, "--json", "--live", *QUICKLY, *PATIENT)
        assert process.stderr is not None
        self.said = [next(process.stderr)]
        while not self.said[-1].startswith("live: "):
            self.said.append(next(process.stderr))
        await_step(process, "deploy")
        watch = start("watch", run_dir, "--json")
        super().__init__(run_dir, finish(process))
        out, self.watch_err = watch.communicate()
        self.snapshots = [msgspec.json.decode(line, type=Snapshot) for line in out.splitlines()]
        self.watch_status = watch.returncode


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return Watched(tmp_path_factory.mktemp("run"))


def test_the_address_is_printed_before_the_run_begins(run: Watched) -> None:
    assert run.said[-1].startswith("live: http://127.0.0.1:")
    assert [line for line in run.said if line.startswith("boot")] == []


def test_the_last_snapshot_has_the_numbers_of_the_summary(run: Watched) -> None:
    last, headline = run.snapshots[-1], run.summary["headline"]
    assert last.ended is not None
    assert (last.ended.state, last.ended.verdict) == ("analysed", run.summary["verdict"])
    assert last.ended.headline == headline
    assert last.ended.report is None, "the run was asked for none"
    assert [reason.text for reason in last.reasons] == run.summary["reasons"]
    assert last.messages.published == headline["messages_published"]
    assert last.messages.expected == headline["deliveries_expected"]
    assert last.messages.ratio == headline["delivery_ratio"]


def test_watch_ends_as_the_run_does(run: Watched) -> None:
    assert (run.watch_status, run.watch_err) == (run.summary["exit_code"], "")


def test_no_snapshot_has_more_messages_than_there_were(run: Watched) -> None:
    """However often the watcher got the processor."""
    published = [each.messages.published or 0 for each in run.snapshots]
    delivered = [each.messages.delivered or 0 for each in run.snapshots]
    assert published == sorted(published)
    assert delivered == sorted(delivered)
    for each in run.snapshots:
        assert (each.messages.delivered or 0) <= (each.messages.expected or 0)


def test_the_run_says_which_phases_began(run: Watched) -> None:
    begun = [line["name"] for line in run.lines("phases.jsonl")]
    assert begun == [phase["name"] for phase in run.manifest["phases"]]
    planned = {line["name"]: line for line in run.lines("phases.jsonl") if "end_ns" in line}
    ended = {phase["name"]: phase for phase in run.manifest["phases"] if phase["name"] in planned}
    assert planned == ended
    assert set(planned) == {"warmup", "workload", "cooldown"}
