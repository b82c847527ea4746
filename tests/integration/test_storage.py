"""Runs in an S3 store: analysed, compared and copied as on a file system, with results that a pointer names."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cli import main
from metrics.analysis import analyse
from metrics.copying import copy_run
from metrics.executors.cluster import WorkersError, require_workers
from metrics.executors.in_process import InProcess
from metrics.pcap.listing import list_captures
from metrics.rundir import Pointer, RunDir, RunDirError, read_pointer, write_document
from metrics.rundir.files import POINTER_FILE
from metrics.storage import StoreError, StorePath, place
from metrics.storage.attempts import Attempt, whole, whole_folder
from metrics.storage.copies import copy_file, map_array, map_bytes
from metrics.storage.parquet import open_dataset, read_footer, read_parquet
from metrics.store_results import publishing
from metrics.tables.schemas import TABLES
from metrics.tables.staged import ParquetPart, remove_attempts, temporary_folder
from tests.fabricate import Fabrication
from tests.object_store import KEYS, make_bucket, publish, s3_server

ROOT = Path(__file__).parents[2]
_NUMBERS = itertools.count()
SCHEMA = pa.schema([("value", pa.int64())])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with s3_server() as started:
        yield started


@pytest.fixture
def bucket(url: str, monkeypatch: pytest.MonkeyPatch) -> StorePath:
    """A bucket of the test's own."""
    for name, value in (KEYS | {"AWS_ENDPOINT_URL": url}).items():
        monkeypatch.setenv(name, value)
    return make_bucket(f"bucket-{next(_NUMBERS)}")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, analysed on this machine."""
    run_dir = Fabrication(seed=5, nodes=6, topics=3, messages=30).write(tmp_path_factory.mktemp("local") / "run")
    shutil.copytree(run_dir, recorded_beside(run_dir))
    analyse(run_dir, "here", packets=True)
    return run_dir


def recorded_beside(local: Path) -> Path:
    """Where the same run is on this machine, not analysed."""
    return local.with_name("recorded")


@pytest.fixture
def stored(bucket: StorePath, local: Path) -> StorePath:
    """The same run in the store, not analysed."""
    run_dir = bucket / "runs/plain run"
    copy_run(recorded_beside(local), run_dir)
    return run_dir


@pytest.fixture
def analysed(stored: StorePath, local: Path) -> StorePath:
    """The same run in the store, with results."""
    publish(local, stored)
    return stored


def rows(run: RunDir, name: str) -> list[str]:
    return sorted(map(str, read_parquet(run.tables / f"{name}.parquet").to_pylist()))


def hidden(folder: StorePath) -> list[str]:
    return [path.name for path in folder.walk() if path.name.startswith(".")]


# ---------------------------------------------------------------------------------------------------------- runs


@pytest.mark.long
def test_an_analysis_in_a_store_has_the_rows_of_one_on_this_machine(stored: StorePath, local: Path) -> None:
    before = {str(path) for path in stored.walk()}
    summary = analyse(stored, "here", packets=True)
    run, here = RunDir(stored), RunDir(local)
    assert summary == run.summary
    assert summary.headline == here.summary.headline
    for name in (*TABLES, "packets"):
        assert rows(run, name) == rows(here, name), name
    made = {str(path) for path in stored.walk()} - before
    assert {name.removeprefix(f"{stored}/").partition("/")[0] for name in made} == {"analyses", "analysis.json"}
    assert (run.results / "report/index.html").read_text() == (local / "report/index.html").read_text()
    assert hidden(stored) == []


ON_SPARK = """
import sys

from metrics.analysis import analyse_by
from metrics.executors import opened
from metrics.storage import place
from metrics.tables import shares

shares.LEAST_ROWS = 10  # as if the run were large

def look(_):
    import sys  # the function travels alone

    imported = "metrics.tables.hops" in sys.modules
    import metrics

    return f"imported before: {imported}, from {metrics.__file__}"

with opened("local[*]") as executor:
    print(*executor.map(look, range(executor.workers)), sep="\\n")
    print(analyse_by(executor, place(sys.argv[1]), packets=True, page=False).computed_by)
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_spark_on_this_machine_reads_a_store_and_has_the_rows_of_one_process(stored: StorePath, local: Path) -> None:
    """Its workers begin with our kernels imported and no copy of them."""
    before = {str(path) for path in stored.walk()}
    argv = [sys.executable, "-c", ON_SPARK, str(stored)]
    done = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True, timeout=900)
    *workers, computed_by = done.stdout.splitlines()
    assert set(workers) == {f"imported before: True, from {ROOT / 'metrics/__init__.py'}"}
    assert computed_by.startswith("by Spark at local[*], "), done.stdout
    run, here = RunDir(stored), RunDir(local)
    assert run.summary.headline == here.summary.headline
    for name in (*TABLES, "packets"):
        assert rows(run, name) == rows(here, name), name
    parts = [path for path in (run.tables / "hops.parquet").walk() if path.suffix == ".parquet"]
    assert len(parts) == (os.cpu_count() or 1), "a share per core"
    made = {str(path) for path in stored.walk()} - before
    assert {name.removeprefix(f"{stored}/").partition("/")[0] for name in made} == {"analyses", "analysis.json"}
    assert hidden(stored) == []


def test_results_are_the_old_ones_until_all_new_ones_are_there(analysed: StorePath) -> None:
    old, pointer = RunDir(analysed), read_pointer(analysed)
    with publishing(analysed) as made:
        (made / "summary.json").write_bytes(b"new")
        assert RunDir(analysed).results == old.results
        assert RunDir(analysed).summary == old.summary
    assert pointer is not None
    new = RunDir(analysed)
    assert (new.results / "summary.json").read_bytes() == b"new"
    assert read_pointer(analysed) == Pointer(new.results.name, pointer.analysis)
    assert rows(old, "messages"), "whoever found the old results can go on reading them"


@pytest.mark.parametrize("directly", [False, True])
def test_an_analysis_that_fails_leaves_nothing(bucket: StorePath, directly: bool) -> None:
    stored = bucket / "run"
    with publishing(stored) as made:
        (made / "summary.json").write_bytes(b"old")
    before = [str(path) for path in stored.walk()]
    with pytest.raises(RuntimeError), publishing(stored, directly=directly) as made:
        (made / "summary.json").write_bytes(b"new")
        assert directly is ([str(path) for path in stored.walk()] != before)
        raise RuntimeError
    assert [str(path) for path in stored.walk()] == before


def test_two_analyses_at_once_do_not_mix_and_the_last_stays(bucket: StorePath) -> None:
    stored = bucket / "run"
    with publishing(stored) as slow:
        (slow / "summary.json").write_bytes(b"slow")
        with publishing(stored) as fast:
            (fast / "summary.json").write_bytes(b"fast")
        quick = RunDir(stored).results
        assert (quick / "summary.json").read_bytes() == b"fast"
    assert (RunDir(stored).results / "summary.json").read_bytes() == b"slow"
    assert (quick / "summary.json").read_bytes() == b"fast", "kept: somebody may be reading it"


def test_results_are_kept_as_long_as_somebody_may_read_them(bucket: StorePath) -> None:
    stored = bucket / "run"
    folder, names = stored / "analyses", []
    (folder / "20200101T000000Z-killed/summary.json").write_bytes(b"long ago")
    (folder / "another/summary.json").write_bytes(b"no analysis")
    running = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-running"
    (running / "summary.json").write_bytes(b"about to be done")
    for number in range(4):
        with publishing(stored) as made:
            (made / "summary.json").write_bytes(str(number).encode())
        names.append(RunDir(stored).results.name)
        left = {path.name for path in folder.iterdir()}
        assert left == {*names[-2:], running.name, "another"}, number


def test_runs_are_compared_wherever_they_are(
    analysed: StorePath, local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(analysed), str(local)]) == 0
    assert "propagation_delay_ms_p99" in capsys.readouterr().out
    assert main(["report", str(analysed), "--master=here"]) == 0
    assert str(RunDir(analysed).results / "report/index.html") in capsys.readouterr().out


def test_tables_in_a_store_are_made_and_exported(
    stored: StorePath, local: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tables", str(stored), "--master=here", f"--csv={tmp_path / 'store'}"]) == 0
    assert str(RunDir(stored).tables) in capsys.readouterr().out
    assert main(["tables", str(local), f"--csv={tmp_path / 'here'}"]) == 0
    for name in TABLES:
        there, here = ((tmp_path / where / f"{name}.csv").read_text() for where in ("store", "here"))
        assert sorted(there.splitlines()) == sorted(here.splitlines()), name


def test_the_frames_of_a_capture_in_a_store_are_shown(
    stored: StorePath, local: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(stored / "capture/plane.pcapng")]) == 0
    there = capsys.readouterr()
    assert main(["inspect", str(local / "capture/plane.pcapng")]) == 0
    assert there == capsys.readouterr()
    assert there.out.count("\n") > 10


def test_captures_are_found_by_uri(stored: StorePath) -> None:
    capture = stored / "capture/plane.pcapng"
    for path in (capture, stored / "capture", f"{stored}/capture", f"{stored}/capture/*.pcapng"):
        assert [(each.path, each.name) for each in list_captures(path).captures] == [(capture, "plane.pcapng")]
    with pytest.raises(FileNotFoundError, match="no capture at"):
        list_captures(f"{stored}/capture/*.none")


# -------------------------------------------------------------------------------------------------------- copies


def test_a_copy_from_a_store_is_the_run_with_its_newest_results(stored: StorePath, local: Path, tmp_path: Path) -> None:
    with publishing(stored) as older:
        (older / "summary.json").write_bytes(b"of an earlier analysis")
    (stored / "summary.json").write_bytes(b"of an analysis before the copy")
    (stored / "report/index.html").write_bytes(b"likewise")
    publish(local, stored)
    copy_run(stored, tmp_path / "back")
    found = {path.relative_to(tmp_path / "back") for path in (tmp_path / "back").rglob("*") if path.is_file()}
    here = {path.relative_to(local) for path in local.rglob("*") if path.is_file()}
    assert found == here - {Path("analysis.log")}, "only a command writes the log"
    for name in TABLES:
        assert rows(RunDir(tmp_path / "back"), name) == rows(RunDir(local), name), name
    assert RunDir(tmp_path / "back").summary == RunDir(stored).summary


def test_a_copy_is_a_finished_run_when_all_of_it_is_there(
    stored: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = []

    def copy(source: Path | StorePath, target: Path | StorePath) -> None:
        copied.append(target.name)
        if target.name == "plan.json":
            raise OSError("full")
        copy_file(source, target)

    monkeypatch.setattr("metrics.storage.copies.copy_file", copy)
    with pytest.raises(OSError, match="full"):
        copy_run(stored, tmp_path / "half")
    assert "manifest.json" not in copied
    copied.clear()
    monkeypatch.setattr("metrics.storage.copies.copy_file", lambda source, target: copied.append(target.name))
    copy_run(stored, tmp_path / "whole")
    assert copied[-1] == "manifest.json"


def test_what_is_hidden_is_not_copied_and_no_run_is_overwritten(local: Path, bucket: StorePath, tmp_path: Path) -> None:
    source = tmp_path / "run"
    shutil.copytree(local, source)
    (source / ".work").mkdir()
    (source / ".work/lock").touch()
    assert main(["copy", str(source), str(bucket / "run")]) == 0
    assert not (bucket / "run/.work").exists()
    assert rows(RunDir(bucket / "run"), "messages") == rows(RunDir(local), "messages")
    assert main(["copy", str(source), str(bucket / "run")]) == 2
    with pytest.raises(RunDirError, match="not a run directory"):
        copy_run(bucket / "none", tmp_path / "none")


# --------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("s3://BUCKET/none", "not a run directory: it has no plan.json"),
        ("s3://nosuchbucket/run", "not a run directory: it has no plan.json"),
        ("ftp://host/run", "'ftp' is not among the known schemes: file, s3, gs, hdfs"),
        ("s3:///run", "it names no bucket or host"),
        ("s3://key:secret@bucket/run", "keys do not belong in a URI"),
        ("s3://bucket/run?scheme=carrier-pigeon", "the store cannot be used"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(
    bucket: StorePath, capsys: pytest.CaptureFixture[str], uri: str, words: str
) -> None:
    for verb in ("tables", "report", "compare"):
        assert main([verb, uri.replace("BUCKET", str(bucket).removeprefix("s3://").strip("/"))]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"trellis {verb}: ")
        assert words in said
        assert said.count("\n") == 1
        assert "secret" not in said


@pytest.mark.parametrize(
    "words",
    [
        ("run", "x.toml", "--out"),
        ("sweep", "x.toml", "--out"),
        ("serve",),
        ("replay",),
        ("tables", "/tmp/run", "--csv"),
    ],
)
def test_verbs_that_need_a_folder_refuse_a_store(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "s3://bucket/run"]) == 2
    assert "s3://bucket/run: only a folder of this machine will do; `trellis copy`" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_google_store_that_does_not_answer_is_asked_for_seconds() -> None:
    assert "retry_limit_seconds=15" in str(place("gs://bucket/run").__reduce__())
    assert "retry_limit_seconds=3" in str(place("gs://bucket/run?retry_limit_seconds=3").__reduce__())


def test_options_are_kept_and_not_shown(bucket: StorePath, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (bucket / "a").write_bytes(b"1")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    found = place(f"{bucket}a?endpoint_override={url.removeprefix('http://')}&scheme=http&region=us-east-1")
    assert str(found) == f"{bucket}a"
    assert found.read_bytes() == b"1"
    assert place("file:///tmp/run") == Path("/tmp/run")
    assert place("/tmp/run") == Path("/tmp/run")
    assert place("runs/a:b") == Path("runs/a:b")


def test_workers_that_cannot_use_the_store_are_told_about_keys(bucket: StorePath) -> None:
    class Keyless(InProcess):
        def map(self, task, items):
            return [("there", False, None) for _ in items]

    with InProcess(2) as executor:
        require_workers(executor, "spark://a:1", bucket, bucket / "results")
    with Keyless(2) as executor, pytest.raises(WorkersError, match="on there cannot read and write it; they need keys"):
        require_workers(executor, "spark://a:1", bucket, bucket / "results")
    assert bucket.walk() == []


# ------------------------------------------------------------------------------------------------- single objects


def test_an_object_appears_whole_or_not_at_all(bucket: StorePath) -> None:
    path = bucket / "folder/part"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="full"), path.create() as file:
        file.write(b"half")
        raise OSError("full")
    with pytest.raises(OSError, match="full"), whole(path) as attempt:
        attempt.write_text("half")
        raise OSError("full")
    assert path.read_bytes() == b"old"
    with whole(path) as attempt:
        attempt.write_text("whole")
        assert path.read_bytes() == b"old"
    assert path.read_text() == "whole"
    assert bucket.walk() == [path]


def test_a_folder_of_an_attempt_that_fails_does_not_appear(bucket: StorePath) -> None:
    with pytest.raises(OSError, match="full"), whole_folder(bucket / "folder") as attempt:
        (attempt / "part").write_text("half")
        raise OSError("full")
    assert bucket.walk() == []
    with whole_folder(bucket / "folder") as attempt:
        (attempt / "part").write_text("whole")
        assert bucket.walk() == []
    assert bucket.walk() == [bucket / "folder/part"]
    assert (bucket / "folder/part").read_text() == "whole"


def test_two_attempts_at_a_part_at_once_leave_a_whole_one(bucket: StorePath) -> None:
    rows, path = pa.table({"value": range(150_000)}, SCHEMA), bucket / "table/part-0.parquet"
    slow, fast = ParquetPart(path, SCHEMA), ParquetPart(path, SCHEMA)
    for part in (slow, fast):
        part.add(rows)
    fast.close()
    assert read_parquet(path).equals(rows)
    slow.close()
    assert read_parquet(bucket / "table").equals(rows)
    (bucket / "table/.part-1.parquet.0123").write_bytes(b"of a task that was killed")
    assert read_parquet(bucket / "table").equals(rows), "readers of the folder leave the attempt out"
    remove_attempts(bucket / "table")
    assert bucket.walk() == [path]


def test_an_attempt_that_is_given_up_leaves_no_file(
    bucket: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    attempt = Attempt(bucket / "part")
    assert attempt.path.is_relative_to(tmp_path), "on Spark's executors, their own folder"
    attempt.path.write_bytes(b"half")
    attempt.discard()
    assert list(tmp_path.iterdir()) == []
    assert not (bucket / "part").exists()


def test_a_temporary_folder_goes_however_its_block_ends(bucket: StorePath) -> None:
    with pytest.raises(RuntimeError), temporary_folder(bucket / "tables", ".staging-") as folder:
        (folder / "deep/part").write_bytes(b"1")
        assert (bucket / "tables").is_dir()
        raise RuntimeError
    assert bucket.walk() == []


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 17 << 20])
def test_bytes_are_mapped_as_they_are(bucket: StorePath, tmp_path: Path, size: int) -> None:
    """Of more than a piece, and of none."""
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    content.tofile(tmp_path / "file")
    copy_file(tmp_path / "file", bucket / "object")
    for path in (tmp_path / "file", bucket / "object"):
        assert np.array_equal(map_bytes(path), content)
    first = map_bytes(bucket / "object")
    assert map_bytes(bucket / "object").ctypes.data == first.ctypes.data or not size, "a copy for both"
    copy_file(bucket / "object", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "file").read_bytes()


def test_arrays_are_mapped_as_they_are(bucket: StorePath) -> None:
    for array in (np.arange(12).reshape(3, 4), np.asfortranarray(np.ones((2, 5), "<f4")), np.empty(0, np.int64)):
        with whole(bucket / "array.npy") as attempt, attempt.open("wb") as file:
            np.save(file, array)
        found = map_array(bucket / "array.npy")
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)


def test_objects_are_read_line_by_line_and_in_ranges(bucket: StorePath) -> None:
    lines = b"".join(b"%d\n" % number for number in range(500_000))
    (bucket / "lines").write_bytes(lines)
    with (bucket / "lines").open() as file:
        first, second, rest = file.read(1000), file.readline(), file.read()
    assert first == lines[:1000]
    assert second == lines[1000:].partition(b"\n")[0] + b"\n"
    assert first + second + rest == lines
    with (bucket / "lines").open() as file:
        assert list(file) == lines.splitlines(keepends=True)


def test_a_folder_without_parts_is_a_table_without_rows(bucket: StorePath) -> None:
    assert len(open_dataset(bucket / "none", SCHEMA).to_table()) == 0
    assert open_dataset(bucket / "none", SCHEMA).schema == SCHEMA
    with pytest.raises(FileNotFoundError):
        open_dataset(bucket / "none")
    with whole(bucket / "one/part-0.parquet") as attempt:
        pq.write_table(pa.table({"value": [1, 2]}, SCHEMA), attempt)
    assert read_footer(bucket / "one/part-0.parquet").num_rows == 2
    assert read_parquet(bucket / "one", ["value"]).to_pydict() == {"value": [1, 2]}


def test_names_are_those_of_pathlib(bucket: StorePath) -> None:
    path, same = bucket / "run/trace" / "12.jsonl", Path("/run/trace/12.jsonl")
    for name in ("name", "stem", "suffix"):
        assert getattr(path, name) == getattr(same, name)
    assert path.parent.name == same.parent.name
    assert path.with_name("x").name == "x"
    path.write_bytes(b"12")
    (bucket / "run/trace/.hidden").write_bytes(b"")
    assert [each.name for each in (bucket / "run/trace").glob("*.jsonl")] == ["12.jsonl"]
    assert [each.name for each in (bucket / "run").iterdir()] == ["trace"]
    assert list((bucket / "nowhere").glob("*")) == []
    assert path.stat().st_size == 2
    for missing in ("stat", "read_bytes", "open"):
        with pytest.raises(FileNotFoundError):
            getattr(bucket / "none", missing)()
    assert (path.exists(), path.is_file(), path.is_dir()) == (True, True, False)
    assert (path.parent.exists(), path.parent.is_file(), path.parent.is_dir()) == (True, False, True)


def test_a_store_that_does_not_answer_is_an_error_in_words(bucket: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    silent = place("s3://runs/run")
    with pytest.raises(StoreError, match=r"s3://runs/run: the store cannot be used: .*onnect"):
        silent.exists()


def test_a_damaged_pointer_is_said(bucket: StorePath) -> None:
    stored = bucket / "run"
    (stored / "plan.json").write_bytes(b"{}")
    write_document(stored / POINTER_FILE, {"analysis": 3})
    with pytest.raises(RunDirError, match=r"analysis\.json is damaged"):
        RunDir(stored)


def test_verbs_that_need_no_store_import_no_arrow() -> None:
    """The command line knows the words of stores, and starts as fast as before."""
    program = "import sys, harness.cli; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", program], check=False, env=os.environ).returncode == 0
