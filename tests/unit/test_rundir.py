"""The run directory: names, readers, and runs of other schema versions."""

import ast
import json
import re
import resource
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.json import Decoder

from harness import cli
from metrics.rundir import (
    SCHEMA_VERSION,
    Manifest,
    Phase,
    RunDir,
    RunDirError,
    Stall,
    read_document,
    read_lines,
    write_document,
)
from metrics.rundir.documents import PlanOutline
from metrics.rundir.files import MANIFEST_FILE, PLAN_FILE, STALLS_FILE, SUMMARY_FILE, TABLES_FOLDER, table_file
from metrics.rundir.parquet import VERSION, labelled, version_of
from metrics.tables.schemas import arrow_schema, require_tables
from metrics.tables.shares import Share, write_share
from metrics.tables.staged import ParquetPart
from tests.fabricate import Fabrication

CHECKOUT = Path(__file__).parents[2]
OWNERS = ("metrics/rundir/files.py", "peer/files.py")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run of version 0: its manifest does not say so."""
    return Fabrication(seed=3, nodes=5, topics=3, messages=20).write(tmp_path / "run")


def change_manifest(run_dir: Path, **fields: Any) -> None:
    """Change fields of the manifest; None = leave the field out."""
    document = json.loads((run_dir / MANIFEST_FILE).read_bytes()) | fields
    kept = {name: value for name, value in document.items() if value is not None}
    (run_dir / MANIFEST_FILE).write_text(json.dumps(kept))


def literals(source: str) -> Counter[str]:
    """How often each string is written in a module."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found[node.value] += 1
    return found


def test_every_file_is_named_once() -> None:
    named = sum((literals((CHECKOUT / owner).read_text()) for owner in OWNERS), Counter())
    files = {name for name in named if re.fullmatch(r"[a-z_.]+\.(json|jsonl|parquet|toml)", name)}
    assert {"manifest.json", "overlay.json", "schedule.jsonl", "achieved.parquet", "experiment.toml"} <= files
    assert all(named[name] == 1 for name in files)
    for room in ("harness", "metrics", "peer", "topologies"):
        for path in sorted((CHECKOUT / room).rglob("*.py")):
            if (where := path.relative_to(CHECKOUT).as_posix()) not in OWNERS:
                source = path.read_text()
                if any(name in source for name in files):  # otherwise it need not be parsed
                    assert not files & literals(source).keys(), where


def test_a_missing_file_is_named_with_what_that_means(run_dir: Path) -> None:
    run = RunDir(run_dir)
    with pytest.raises(RunDirError, match=rf"{run_dir}: summary\.json is missing: .*trellis report {run_dir}$"):
        _ = run.summary
    (run_dir / MANIFEST_FILE).unlink()
    with pytest.raises(RunDirError, match=rf"^{run_dir}: manifest\.json is missing: the run did not finish$"):
        _ = RunDir(run_dir).manifest
    for path, problem in (
        (run_dir / PLAN_FILE, r"not a run directory: it has no plan\.json"),
        (run_dir / "nowhere", "No such file or directory"),
    ):
        with pytest.raises(RunDirError, match=rf"^{path}: {problem}$"):
            _ = RunDir(path).manifest


def test_a_file_that_cannot_be_read_is_no_missing_one(run_dir: Path) -> None:
    (run_dir / SUMMARY_FILE).mkdir()
    with pytest.raises(RunDirError, match=r"summary\.json: Is a directory"):
        read_document(run_dir / SUMMARY_FILE, bytes.decode)


def take_key(content: bytes) -> Any:
    return {}[content]


def take_text(content: bytes) -> Any:
    return content["x"]


@pytest.mark.parametrize(
    ("content", "decode"),
    [
        (b"{", Decoder(PlanOutline).decode),
        (b"{}", Decoder(PlanOutline).decode),
        (b"\xff", bytes.decode),
        (b"[]", take_key),
        (b"1", take_text),
    ],
    ids=["cut", "incomplete", "no text", "KeyError", "TypeError"],
)
def test_a_damaged_file_is_named(content: bytes, decode: Any, run_dir: Path) -> None:
    (run_dir / PLAN_FILE).write_bytes(content)
    with pytest.raises(RunDirError, match=rf"^{run_dir}: plan\.json is damaged: "):
        read_document(run_dir / PLAN_FILE, decode)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("interests", "kind", ["popularity"]),
        ("interests", "ratio", "1"),
        ("interests", "subscriptions_min", {}),
        ("membership", "kind", 3),
        ("workload", "topics", "all"),
        ("underlay", "mtu_bytes", "1280"),
        ("random", "view_size", "40"),
        ("cyclon", "view_size", []),
        ("interests", None, []),
        ("membership", None, "cyclon"),
        ("random", None, [1]),
        ("cyclon", None, 7),
    ],
)
def test_a_plan_with_a_foreign_value_is_damaged(section: str, key: str | None, value: object, run_dir: Path) -> None:
    change_manifest(run_dir, schema_version=SCHEMA_VERSION)
    plan = json.loads((run_dir / PLAN_FILE).read_bytes())
    plan["experiment"]["membership"]["kind"] = "cyclon"
    if key is None:
        plan["experiment"][section] = value
    else:
        plan["experiment"].setdefault(section, {})[key] = value
    (run_dir / PLAN_FILE).write_text(json.dumps(plan))
    with pytest.raises(RunDirError, match=rf"^{run_dir}: plan\.json is damaged: Expected `"):
        _ = RunDir(run_dir).plan


def test_the_payload_of_a_full_packet_follows_from_the_mtu(run_dir: Path) -> None:
    assert RunDir(run_dir).segment_bytes == 1448
    plan = json.loads((run_dir / PLAN_FILE).read_bytes())
    plan["experiment"]["underlay"]["mtu_bytes"] = 1280
    (run_dir / PLAN_FILE).write_text(json.dumps(plan))
    assert RunDir(run_dir).segment_bytes == 1280 - 20 - 20 - 12


@pytest.mark.parametrize("cut", range(1, len(Stall("host", 5, 6, 0).line())))
def test_lines_are_read_up_to_one_that_was_cut_off(cut: int, tmp_path: Path) -> None:
    first, second = Stall("host", 1, 2, 0), Stall("plane", 3, 4)
    last = Stall("host", 5, 6, 0).line()
    path = tmp_path / STALLS_FILE
    path.write_bytes(first.line() + second.line() + last[:cut])
    whole = cut == len(last) - 1  # only the end of the line is missing
    assert read_lines(path, Decoder(Stall).decode)[:2] == [first, second]
    assert len(read_lines(path, Decoder(Stall).decode)) == 2 + whole


def test_lines_after_a_damaged_one_are_not_read_and_a_missing_file_has_none(tmp_path: Path) -> None:
    path = tmp_path / STALLS_FILE
    assert read_lines(path, Decoder(Stall).decode) == []
    path.write_bytes(Stall("host", 1, 2, 0).line() + b"\xff\n" + Stall("host", 3, 4, 0).line())
    assert read_lines(path, Decoder(Stall).decode) == [Stall("host", 1, 2, 0)]
    (tmp_path / PLAN_FILE).touch()
    assert RunDir(tmp_path).lines(STALLS_FILE) == [{"source": "host", "start_ns": 1, "end_ns": 2, "cpu": 0}]


def test_a_document_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / PLAN_FILE
    write_document(path, {"seed": 1})
    assert [each.name for each in tmp_path.iterdir()] == [PLAN_FILE]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_document(path, {"seed": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.name for each in tmp_path.iterdir()] == [PLAN_FILE]
    assert json.loads(path.read_bytes()) == {"seed": 1}


def test_a_run_without_a_version_is_read(run_dir: Path) -> None:
    run = RunDir(run_dir)
    assert run.manifest.schema_version == 0
    assert (run.plan.name, run.nodes, run.nodes_by_host) == ("fabricated", [*range(5)], [*range(5)])
    assert run.underlay.size == 5


def test_a_run_of_this_version_is_read_and_its_faults_are_damage(run_dir: Path) -> None:
    change_manifest(run_dir, schema_version=SCHEMA_VERSION)
    assert RunDir(run_dir).manifest.schema_version == SCHEMA_VERSION
    change_manifest(run_dir, zero_ns=None)
    with pytest.raises(RunDirError, match=rf"^{run_dir}: manifest\.json is damaged: .*zero_ns"):
        _ = RunDir(run_dir).manifest


@pytest.mark.parametrize("name", ["manifest", "plan"])
def test_an_older_run_that_lacks_something_is_refused_in_a_sentence(name: str, run_dir: Path) -> None:
    change_manifest(run_dir, versions={"trellis-testbed": "0.3", "trellis revision": "abc"})
    path = run_dir / f"{name}.json"
    document = json.loads(path.read_bytes())
    del document[{"manifest": "zero_ns", "plan": "placement"}[name]]
    path.write_text(json.dumps(document))
    with pytest.raises(RunDirError) as raised:
        getattr(RunDir(run_dir), name)
    said = str(raised.value)
    assert said.startswith(
        f"{run_dir}: has schema version 0, and this Trellis reads versions up to {SCHEMA_VERSION}, but"
    )
    assert f"{name}.json lacks what it needs" in said
    assert said.endswith("; use the Trellis that made the run (version 0.3, revision abc), or run the experiment again")


def test_a_file_of_an_older_run_that_is_cut_off_is_damaged(run_dir: Path) -> None:
    path = run_dir / PLAN_FILE
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RunDirError, match=rf"^{run_dir}: plan\.json is damaged: "):
        _ = RunDir(run_dir).plan


def test_an_older_summary_that_lacks_something_is_to_be_computed_again(run_dir: Path) -> None:
    (run_dir / SUMMARY_FILE).write_text('{"verdict": "valid"}')
    with pytest.raises(RunDirError, match=rf"^{run_dir}: has schema version 0, .*: trellis report {run_dir}$"):
        _ = RunDir(run_dir).summary


@pytest.mark.parametrize("name", ["manifest", "plan", "underlay", "summary"])
def test_a_newer_run_is_refused_whatever_is_read_of_it(name: str, run_dir: Path) -> None:
    change_manifest(run_dir, schema_version=SCHEMA_VERSION + 1, zero_ns=None)
    with pytest.raises(RunDirError) as raised:
        getattr(RunDir(run_dir), name)
    versions = f"has schema version {SCHEMA_VERSION + 1}, and this Trellis reads versions up to {SCHEMA_VERSION}"
    assert str(raised.value) == f"{run_dir}: {versions}; use the Trellis that made the run"


@pytest.mark.parametrize("verb", ["report", "tables", "compare", "inspect"])
def test_every_command_refuses_a_newer_run_in_one_line(
    verb: str, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_manifest(run_dir, schema_version=SCHEMA_VERSION + 1)
    before = sorted(run_dir.iterdir())
    asked = run_dir / "capture" / "plane.pcapng" if verb == "inspect" else run_dir
    assert cli.main([verb, str(asked)]) == RunDirError.exit_code
    assert capsys.readouterr().err.startswith(f"trellis {verb}: {run_dir}: has schema version {SCHEMA_VERSION + 1}, ")
    assert sorted(run_dir.iterdir()) == before


def test_a_capture_outside_a_run_has_no_version(run_dir: Path, tmp_path: Path) -> None:
    change_manifest(run_dir, schema_version=SCHEMA_VERSION + 1)
    capture = tmp_path / "capture" / "plane.pcapng"
    capture.parent.mkdir()
    shutil.copy(run_dir / "capture" / "plane.pcapng", capture)
    assert cli.main(["inspect", str(capture)]) == 0


def write_table(run: RunDir, name: str, rows: pa.Table) -> Path:
    path = run.tables / table_file(name) / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(rows, path)
    return path


def test_tables_of_this_and_of_no_version_can_be_read(run_dir: Path) -> None:
    run = RunDir(run_dir)
    assert run.tables == run_dir / TABLES_FOLDER
    require_tables(run)
    (run.tables / table_file("links")).mkdir(parents=True)  # no part, as when an analysis was killed
    old = write_table(run, "hops", arrow_schema("hops").empty_table())
    new = write_table(run, "conns", labelled(arrow_schema("conns").empty_table()))
    assert [version_of(pq.read_metadata(path)) for path in (old, new)] == [0, SCHEMA_VERSION]
    require_tables(run)


def test_tables_that_cannot_be_read_are_refused_with_what_to_do(run_dir: Path) -> None:
    run = RunDir(run_dir)
    columns = arrow_schema("hops").empty_table()
    path = write_table(run, "hops", columns.drop_columns(["conn", "off"]))
    with pytest.raises(RunDirError) as raised:
        require_tables(run)
    known = f"and this Trellis reads versions up to {SCHEMA_VERSION}"
    again = f"compute the tables again: trellis report {run_dir}"
    assert str(raised.value) == (
        f"{run_dir}: its tables have schema version 0, {known}, but hops lacks conn, off; {again}"
    )
    pq.write_table(columns.replace_schema_metadata({VERSION: str(SCHEMA_VERSION + 1)}), path)
    with pytest.raises(RunDirError) as raised:
        require_tables(run)
    assert str(raised.value) == f"{run_dir}: its tables have schema version {SCHEMA_VERSION + 1}, {known}; {again}"


def test_parts_say_their_version(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    part = ParquetPart(tmp_path / "part-0.parquet", rows.schema)
    part.add(rows)
    part.close()
    write_share({"y": rows}, {"y": tmp_path}, Share(1, 2))
    for number in (0, 1):
        assert version_of(pq.read_metadata(tmp_path / f"part-{number}.parquet")) == SCHEMA_VERSION


def test_the_manifest_tells_the_timeline() -> None:
    phases = (Phase("warmup", 1, 5), Phase("workload", 5, 9))
    timeline = Manifest("r", "emulated", 0, 5, phases, (), {}, {}, {}, {}).timeline
    assert (timeline.start_ns, timeline.zero_ns, timeline.published_ns) == (1, 5, 9)
