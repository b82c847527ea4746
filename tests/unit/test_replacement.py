"""Results are replaced as a whole, by one process at a time."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.stages.analysis import AnalysisError, exclusive
from metrics.replacement import replacing
from metrics.rundir.files import ANALYSIS_LOG
from metrics.tables.staged import ParquetPart, remove_attempts, whole

OUTDATED = ("summary.json", "report")
SCHEMA = pa.schema([("value", pa.int64())])


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """With the results of an earlier analysis."""
    for folder in ("tables", "report"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "content").write_text("old")
    (tmp_path / "summary.json").write_text("old")
    (tmp_path / "manifest.json").write_text("{}")
    return tmp_path


def state(run_dir: Path) -> dict[str, str]:
    return {str(path.relative_to(run_dir)): path.read_text() for path in run_dir.rglob("*") if path.is_file()}


def replace_tables(run_dir: Path) -> None:
    with replacing(run_dir, "tables", OUTDATED) as made:
        (made / "content").write_text("new")


def test_new_results_take_what_was_made_from_old_ones_away(run_dir: Path) -> None:
    replace_tables(run_dir)
    assert state(run_dir) == {"manifest.json": "{}", "tables/content": "new"}


def test_what_fails_in_the_middle_leaves_all_as_it_was(run_dir: Path) -> None:
    before = state(run_dir)
    with pytest.raises(OSError, match="full"), replacing(run_dir, "tables", OUTDATED) as made:
        (made / "content").write_text("half")
        raise OSError("full")
    assert state(run_dir) == before


@pytest.mark.parametrize("last", range(4))
def test_old_and_new_results_are_never_mixed(run_dir: Path, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever step of the replacement is the last."""
    rename, steps = Path.rename, []

    def rename_until(path: Path, target: Path) -> Path:
        if len(steps) == last:
            raise KeyboardInterrupt
        steps.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_until)
    with pytest.raises(KeyboardInterrupt):
        replace_tables(run_dir)
    left = {name: text for name, text in state(run_dir).items() if name != "manifest.json"}
    assert set(left.values()) <= {"old"}
    assert "tables/content" in left or not left, "no summary and no report without its tables"


def test_what_a_killed_analysis_left_is_removed_by_the_next(run_dir: Path) -> None:
    (run_dir / ".analysis-killed").mkdir()
    (run_dir / ".analysis-killed" / "part").write_text("half")
    replace_tables(run_dir)
    assert state(run_dir) == {"manifest.json": "{}", "tables/content": "new"}


def test_a_second_analysis_is_refused_while_the_first_is_at_work(run_dir: Path) -> None:
    with exclusive(run_dir) as log:
        log.write(b"the first one's words")
        log.flush()
        with pytest.raises(AnalysisError, match="another process works on it"), exclusive(run_dir):
            pytest.fail("two are at work")
        assert (run_dir / ANALYSIS_LOG).read_bytes() == b"the first one's words"
    with exclusive(run_dir):
        pass


def test_a_process_that_outlives_its_parent_keeps_others_out(run_dir: Path) -> None:
    """As an analysis on a cluster does whose command was killed."""
    with exclusive(run_dir) as log:
        argv = [sys.executable, "-c", "input()"]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.DEVNULL)
    with pytest.raises(AnalysisError), exclusive(run_dir):
        pytest.fail("two are at work")
    child.communicate(b"\n")
    with exclusive(run_dir):
        pass


def test_two_attempts_at_a_part_at_once_leave_a_whole_one(tmp_path: Path) -> None:
    """The slower one is killed in the middle of its work: its task was speculative."""
    rows, path = pa.table({"value": range(150_000)}, SCHEMA), tmp_path / "part-0.parquet"
    slow, fast = ParquetPart(path, SCHEMA), ParquetPart(path, SCHEMA)
    slow.add(rows)
    fast.add(rows)
    assert not path.exists(), "nobody sees a part that is not whole"
    fast.close()
    slow.add(rows)
    assert pq.read_table(path).equals(rows)
    assert pq.read_table(tmp_path).equals(rows), "readers of the folder leave the other attempt out"
    remove_attempts(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "part"
    with pytest.raises(OSError, match="full"), whole(path) as attempt:
        attempt.write_text("half")
        raise OSError("full")
    assert list(tmp_path.iterdir()) == []
    with whole(path) as attempt:
        attempt.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]
