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
from metrics.storage.attempts import whole, whole_folder
from metrics.tables.staged import ParquetPart, remove_attempts

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


def replace(run_dir: Path, *, page: bool = True) -> None:
    """As an analysis does, with or without a report."""
    with replacing(run_dir) as made:
        for folder in ("tables", *(["report"] if page else [])):
            (made / folder).mkdir()
            (made / folder / "content").write_text("new")
        (made / "summary.json").write_text("new")


NEW = {"manifest.json": "{}", "summary.json": "new", "tables/content": "new", "report/content": "new"}


def test_new_results_replace_old_ones_together(run_dir: Path) -> None:
    replace(run_dir)
    assert state(run_dir) == NEW


def test_a_report_goes_with_the_tables_that_it_was_made_of(run_dir: Path) -> None:
    replace(run_dir, page=False)
    assert state(run_dir) == {name: text for name, text in NEW.items() if name != "report/content"}


def test_what_fails_in_the_middle_leaves_all_as_it_was(run_dir: Path) -> None:
    before = state(run_dir)
    with pytest.raises(OSError, match="full"), replacing(run_dir) as made:
        (made / "summary.json").write_text("half")
        raise OSError("full")
    assert state(run_dir) == before


RENAMES = 7
"""Of a replacement: three results away, the mark that all are away, and three to their place."""


@pytest.mark.parametrize("last", range(RENAMES + 1))
def test_a_process_killed_within_the_replacement_leaves_old_or_new_results(
    run_dir: Path, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever rename is the last: nothing is mixed, and what comes next finds the old results or the new ones."""
    before, rename, steps = state(run_dir), Path.rename, []

    def rename_until(path: Path, target: Path) -> Path:
        if len(steps) == last:
            raise KeyboardInterrupt
        steps.append(path)
        return rename(path, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "rename", rename_until)
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        replace(run_dir)
        raise KeyboardInterrupt
    left = {name: text for name, text in state(run_dir).items() if not name.startswith((".", "manifest"))}
    assert len(set(left.values())) <= 1
    assert "tables/content" in left or not left, "no summary and no report without its tables"
    with pytest.raises(OSError, match="full"), replacing(run_dir):
        raise OSError("full")
    assert state(run_dir) == (before if last <= 3 else NEW)


def test_a_rename_that_fails_puts_the_old_results_back(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rename = state(run_dir), Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name == "tables" and target.parent.name == "old":
            raise OSError("full")
        return rename(path, target)

    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr(Path, "rename", fail)
        replace(run_dir)
    assert state(run_dir) == before


def test_what_a_killed_analysis_left_is_removed_by_the_next(run_dir: Path) -> None:
    (run_dir / ".analysis-killed").mkdir()
    (run_dir / ".analysis-killed" / "part").write_text("half")
    replace(run_dir)
    assert state(run_dir) == NEW


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


def test_a_folder_appears_whole_or_not_at_all_and_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with pytest.raises(OSError, match="full"), whole_folder(path) as attempt:
        (attempt / "part").write_text("half")
        raise OSError("full")
    assert list(tmp_path.iterdir()) == []
    with whole_folder(path) as slow:
        (slow / "part").write_text("slow")
        with whole_folder(path) as fast:
            (fast / "part").write_text("fast")
            assert not path.exists()
    assert (path / "part").read_text() == "fast"
    assert list(tmp_path.iterdir()) == [path]
