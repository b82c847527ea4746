"""A run directory has folders and files of its own: nothing is read or written through anything else."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pyarrow.fs as pafs
import pytest

from harness import cli
from harness.stages.analysis import AnalysisError, exclusive
from metrics.replacement import replacing
from metrics.rundir import RunDir, RunDirError, open_log, require_run_dir, write_document, write_file
from metrics.rundir.files import ANALYSIS_LOG, PLAN_FILE, SUMMARY_FILE, WORK_FOLDER
from metrics.storage.copies import copy_files, files_below
from metrics.storage.names import StoreError, inner_name
from metrics.storage.paths import StorePath, place


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "trace").mkdir(parents=True)
    (folder / PLAN_FILE).write_text("{}")
    return folder


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


FOREIGN = {
    "a symbolic link": lambda path: path.symlink_to("/etc/hostname"),
    "a named pipe": os.mkfifo,
    "a socket": make_socket,
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize(
    "name", [ANALYSIS_LOG, "manifest.json", "summary.json.part", ".analysis-x", "trace/3.jsonl", "a/b"]
)
def test_what_is_neither_a_folder_nor_a_file_is_refused_by_name(kind: str, name: str, run_dir: Path) -> None:
    (run_dir / name).parent.mkdir(exist_ok=True)
    FOREIGN[kind](run_dir / name)
    for read in (RunDir, require_run_dir):
        with pytest.raises(RunDirError, match=rf"^{run_dir}: {name} is {kind}; a run directory has only files"):
            read(run_dir)


def test_a_link_to_a_folder_is_refused_and_not_entered(run_dir: Path) -> None:
    (run_dir / "tables").symlink_to("/")
    with pytest.raises(RunDirError, match="tables is a symbolic link"):
        RunDir(run_dir)


@pytest.mark.parametrize(
    ("name", "found", "wanted"), [("trace", "a file", "a folder"), ("trace/1.jsonl", "a folder", "a file")]
)
def test_a_file_in_the_place_of_a_folder_is_refused(name: str, found: str, wanted: str, run_dir: Path) -> None:
    if found == "a file":
        (run_dir / name).rmdir()
        (run_dir / name).touch()
    else:
        (run_dir / name).mkdir()
    with pytest.raises(RunDirError, match=f"{name} is {found}, expected {wanted}"):
        RunDir(run_dir)


@pytest.mark.parametrize("verb", ["report", "tables", "compare", "serve", "replay"])
def test_a_folder_without_a_plan_is_no_run_whatever_is_in_it(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to("/")
    make_socket(tmp_path / "socket")
    for folder, problem in (
        (tmp_path, "not a run directory: it has no plan.json"),
        (tmp_path / "none", "No such file or directory"),
    ):
        assert cli.main([verb, str(folder)]) == 2
        assert capsys.readouterr().err == f"trellis {verb}: {folder}: {problem}\n"


def test_the_run_may_be_named_by_a_link_and_agents_may_work_in_it(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / WORK_FOLDER).mkdir()
    (run_dir / WORK_FOLDER / "link").symlink_to("/")
    (tmp_path / "newest").symlink_to(run_dir)
    require_run_dir(tmp_path / "newest")


def test_files_take_the_place_of_links_and_do_not_follow_them(run_dir: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (SUMMARY_FILE, f"{SUMMARY_FILE}.part"):
        (run_dir / name).symlink_to(victim)
        write_document(run_dir / SUMMARY_FILE, {"seed": 1})
        assert (run_dir / SUMMARY_FILE).is_file() and not (run_dir / SUMMARY_FILE).is_symlink()
        (run_dir / SUMMARY_FILE).unlink()
    os.link(victim, run_dir / "page")
    write_file(run_dir / "page", b"new")
    assert (run_dir / "page").read_bytes() == b"new"
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("make", [lambda log, victim: log.symlink_to(victim), lambda log, victim: os.link(victim, log)])
def test_a_log_is_not_opened_through_another_name(make, run_dir: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    make(run_dir / ANALYSIS_LOG, victim)
    with pytest.raises(OSError):
        open_log(run_dir / ANALYSIS_LOG)
    with pytest.raises(AnalysisError, match=rf"^{run_dir}: {ANALYSIS_LOG} cannot be written: "), exclusive(run_dir):
        raise AssertionError
    assert victim.read_text() == "mine"


def test_a_log_that_is_a_pipe_is_refused_at_once(run_dir: Path) -> None:
    os.mkfifo(run_dir / ANALYSIS_LOG)
    with pytest.raises(OSError, match="regular file"):
        open_log(run_dir / ANALYSIS_LOG)


def test_a_log_is_appended_to(run_dir: Path) -> None:
    for words in (b"one\n", b"two\n"):
        with open_log(run_dir / ANALYSIS_LOG) as log:
            log.write(words)
    assert (run_dir / ANALYSIS_LOG).read_bytes() == b"one\ntwo\n"


def test_a_folder_that_looks_like_results_of_a_killed_analysis_does_not_stop_the_next(run_dir: Path) -> None:
    planted = run_dir / ".analysis-x" / "ready" / "tables"
    for folder in (planted, run_dir / "tables"):
        folder.mkdir(parents=True)
        (folder / "file").write_text(str(folder))
    with replacing(run_dir) as made:
        (made / "tables").mkdir()
        assert (run_dir / "tables" / "file").read_text() == str(run_dir / "tables")
    assert list((run_dir / "tables").iterdir()) == []
    assert not (run_dir / ".analysis-x").exists()


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "a//b", "a/", "./a", "a/.", "..", "a/../b", "a\\b", "a\n", "\x1b[31m"]
)
def test_a_name_that_leads_out_of_its_folder_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match=r"^place: expected names without empty parts"):
        inner_name(name, "place")
    with pytest.raises(StoreError):
        StorePath("s3://bucket", "run") / name


@pytest.mark.parametrize("name", ["a", "a/b.c", "..a/b..", "é/ü ö", "a=b/part-0.parquet"])
def test_other_names_are_taken_as_they_are(name: str) -> None:
    assert inner_name(name, "place") == name


@pytest.mark.parametrize(
    "name", ["logs/../../../../escaped.txt", "/etc/passwd", "logs//x", "logs/a\\b", "..", "\x1b[0m"]
)
def test_what_a_store_lists_outside_the_folder_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [pafs.FileInfo(f"bucket/run/{name}", pafs.FileType.File, size=1)]
    monkeypatch.setattr(StorePath, "filesystem", SimpleNamespace(get_file_info=lambda asked: listed))
    monkeypatch.setattr(StorePath, "key", "bucket/run")
    run_dir = StorePath("s3://bucket", "run")
    with pytest.raises(StoreError, match=r"^s3://bucket/run: expected names without empty parts"):
        files_below(run_dir)
    with pytest.raises(StoreError):
        copy_files({name: tmp_path}, tmp_path / "target")
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("uri", ["s3://bucket/a/../b", "s3://bucket/a//b", "s3://bucket/./a"])
def test_a_uri_that_leads_out_of_its_folder_is_refused(uri: str) -> None:
    with pytest.raises(StoreError, match="found"):
        place(uri)


@pytest.mark.parametrize("name", ["file", "folder", "/proc/nowhere"])
def test_a_copy_that_cannot_be_made_is_one_line(
    name: str, run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "manifest.json").write_text('{"schema_version": 1}')
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    assert cli.main(["copy", str(run_dir), str(tmp_path / name)]) in (1, 2)
    said = capsys.readouterr().err
    assert said.startswith("trellis copy: ") and said.count("\n") == 1, said
    assert (tmp_path / "file").read_text() == "mine"
    assert [each.name for each in (tmp_path / "folder").iterdir()] == ["mine"]


def test_a_copy_of_a_run_with_a_link_is_not_made(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_dir / "logs").mkdir()
    (run_dir / "logs" / "notes.txt").symlink_to("/etc/hostname")
    assert cli.main(["copy", str(run_dir), str(tmp_path / "copy")]) == 2
    assert "logs/notes.txt is a symbolic link" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()
