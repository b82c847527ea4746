"""Run directories of a stranger: what is in them, against the commands that read them.

A command ends in bounded time with its work done or with one line. It runs no code of the run, and reads and writes
nothing outside the run and its own target.
"""

import contextlib
import functools
import io
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import cli
from metrics.analysis import analyse
from metrics.rundir.files import REPLAY_PAGE
from tests.examples import long_unless
from tests.fabricate import Fabrication
from tests.unit.test_foreign_text import EVIL

IN_TIME_S = 300
SECRET = "the reader's secret"

Change = Callable[[Path, Path], None]
"""Makes a run hostile; given the run and a folder of the reader."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was analysed."""
    run_dir = Fabrication(seed=5, nodes=4, topics=2, messages=6, duration_s=2.0).write(
        tmp_path_factory.mktemp("sound") / "run", schema_version=1
    )
    (run_dir / "prometheus" / "data").mkdir(parents=True)
    analyse(run_dir, "here")
    return run_dir


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise AssertionError(f"no end within {IN_TIME_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(IN_TIME_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(*argv: str) -> Outcome:
    """Run a command in this process, as its launcher does."""
    out, err = io.StringIO(), io.StringIO()
    with in_time(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main([*argv])
    return Outcome(status, out.getvalue(), err.getvalue())


def in_one_line(outcome: Outcome) -> bool:
    return outcome.err.count("\n") == 1 and outcome.err.startswith("trellis ") and "Traceback" not in outcome.err


# ----------------------------------------------------------------------------------------------------- the commands


def tables(run_dir: Path, out: Path) -> Outcome:
    return call("tables", str(run_dir), "--master", "here")


def export(run_dir: Path, out: Path) -> Outcome:
    return call("tables", str(run_dir), "--master", "here", "--csv", str(out / "csv"))


def report(run_dir: Path, out: Path, *, page: bool = True) -> Outcome:
    """``trellis report`` without its sandbox: the analysis in this process, then the summary is printed."""
    from harness.commands.run import print_outcome

    said, err = io.StringIO(), io.StringIO()
    with in_time(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(err):
        try:
            print_outcome(run_dir, analyse(run_dir, "here", page=page), as_json=False)
        except (cli.RunDirError, cli.StoreError, cli.TrellisError) as error:
            print(f"trellis report: {error}", file=err)
            return Outcome(error.exit_code, said.getvalue(), err.getvalue())
    return Outcome(0, said.getvalue(), err.getvalue())


def compare(run_dir: Path, out: Path, *, page: bool = True) -> Outcome:
    kinds = ("html", "csv", "json") if page else ("csv", "json")
    files = (word for kind in kinds for word in (f"--{kind}", str(out / f"compared.{kind}")))
    return call("compare", str(run_dir), str(run_dir), *files)


def copy(run_dir: Path, out: Path) -> Outcome:
    return call("copy", str(run_dir), str(out / "copy"))


def replay(run_dir: Path, out: Path) -> Outcome:
    return call("replay", str(run_dir))


def serve(run_dir: Path, out: Path) -> Outcome:
    return call("serve", str(run_dir))


COMMANDS = (tables, export, report, compare, copy, replay)


# --------------------------------------------------------------------------------------------------- hostile things


def edit(name: str, change: Callable[[Any], Any]) -> Change:
    """Change a JSON document."""

    def apply(run_dir: Path, home: Path) -> None:
        path = run_dir / name
        path.write_text(json.dumps(change(json.loads(path.read_bytes()))))

    return apply


def put(name: str, content: bytes) -> Change:
    def apply(run_dir: Path, home: Path) -> None:
        path = run_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return apply


def append(name: str, content: bytes) -> Change:
    def apply(run_dir: Path, home: Path) -> None:
        path = run_dir / name
        path.write_bytes((path.read_bytes() if path.exists() else b"") + content)

    return apply


def remove(name: str) -> Change:
    def apply(run_dir: Path, home: Path) -> None:
        (run_dir / name).unlink()

    return apply


def link(name: str, target: str) -> Change:
    """Plant a link to a file or folder of the reader, or to a path."""

    def apply(run_dir: Path, home: Path) -> None:
        path = run_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(target if target.startswith("/") else home / target)

    return apply


def fifo(name: str) -> Change:
    def apply(run_dir: Path, home: Path) -> None:
        (run_dir / name).unlink(missing_ok=True)
        os.mkfifo(run_dir / name)

    return apply


def sparse(name: str) -> Change:
    """A file that says it is a terabyte, and takes no room."""

    def apply(run_dir: Path, home: Path) -> None:
        with (run_dir / name).open("wb") as file:
            file.truncate(1 << 40)

    return apply


def at(*path: Any, value: Any) -> Callable[[Any], Any]:
    """Set a value in a document; ``...`` = delete it."""

    def change(document: Any) -> Any:
        place = document
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        return document

    return change


def parquet(name: str, table: pa.Table) -> Change:
    def apply(run_dir: Path, home: Path) -> None:
        if (run_dir / name).is_dir():
            shutil.rmtree(run_dir / name)
        pq.write_table(table, run_dir / name)

    return apply


def evil_names(run_dir: Path, home: Path) -> None:
    """Markup, formulas and control characters wherever a run has text."""
    for name, content in (("argparse.py", "open('/tmp/owned', 'w')"), ("tables/x'; DROP.parquet/part-0.parquet", "x")):
        put(name, content.encode())(run_dir, home)
    words = " ".join(EVIL)
    edit(
        "manifest.json",
        lambda found: found | {"run_id": words, "problems": [["suspect", words]], "versions": {words: words}},
    )(run_dir, home)
    edit("plan.json", at("name", value=words))(run_dir, home)
    edit("plan.json", at("experiment", "description", value=words))(run_dir, home)
    edit("plan.json", at("experiment", "extra", value={words[:90]: words}))(run_dir, home)
    for number, word in enumerate(EVIL[:4]):
        place = {"name": word, "site": words[:190], "latitude": 1.0 + number, "longitude": 2.0}
        edit("underlay.json", at("hosts", number, value=place))(run_dir, home)
    edit("summary.json", lambda found: found | {"reasons": [words], "verdict": "suspect"})(run_dir, home)


DEEP = b"[" * 100_000 + b"]" * 100_000
DOCUMENTS = ("manifest.json", "plan.json", "underlay.json", "overlay.json")
HUGE = 10**400

LINKS = {
    f"{name} -> {target}": link(name, target)
    for name, target in (
        *(
            (name, "secret")
            for name in ("analysis.log", "summary.json.part", *DOCUMENTS, "trace/0.jsonl", "logs/notes.txt")
        ),
        *(
            (name, "folder")
            for name in ("tables", "report", "capture", ".analysis-x", ".staging-x", "tables/trellis.sql")
        ),
        ("analyses", "/"),
        ("trace/1.jsonl", "/dev/zero"),
        ("attempt.json", "/etc/hostname"),
    )
}

PROBED = (*["src", "dst", "at_ns", "attempt", "sent", "received", "phase"], "asked_rtt_ms", "asked_jitter_ms", "rtt_ms")

DAMAGE = {
    **{f"{name} {what}": put(name, content) for name in DOCUMENTS for what, content in {
        "empty": b"", "cut": b'{"name":', "no object": b"7", "deep": DEEP, "no text": b"\xff\xfe{}", "no fields": b"{}",
    }.items()},
    "plan without workload": edit("plan.json", at("experiment", "workload", value=...)),
    "plan without verdict": edit("plan.json", at("experiment", "verdict", value=...)),
    "plan of deep values": edit("plan.json", at("experiment", "x", value=json.loads("[" * 60 + "]" * 60))),
    "plan of nobody": edit("plan.json", at("placement", value=[])),
    "node beyond the plan": edit("plan.json", at("placement", 0, "node", value=2**31)),
    "host beyond the underlay": edit("plan.json", at("placement", 0, "host", value=10**9)),
    "host of no number": edit("plan.json", at("placement", 0, "host", value=99)),
    "huge seed": edit("plan.json", at("seed", value=HUGE)),
    "endless phase": edit("manifest.json", at("phases", 1, "end_ns", value=2**62)),
    "phase backwards": edit("manifest.json", at("phases", 1, "end_ns", value=0)),
    "zero far away": edit("manifest.json", at("zero_ns", value=-(2**60))),
    "huge counter": edit("manifest.json", at("counters", "frames_in", value=HUGE)),
    "dilation 0": edit("manifest.json", at("time_dilation", value=0)),
    "underlay of fewer rows": edit("underlay.json", at("delay_ms", value=[[0.0]])),
    "underlay of negative delays": edit("underlay.json", at("delay_ms", value=-1.0)),
    "site of a megabyte": edit("underlay.json", at("hosts", 0, "site", value="x" * 1_000_000)),
    "latitude 1e9": edit("underlay.json", at("hosts", 0, "latitude", value=1e9)),
    "overlay of another node": edit("overlay.json", at("nodes", 0, "node", value=77)),
    "overlay without topics": edit("overlay.json", at("nodes", 0, "topics", value=...)),
    "attempt of no form": put("attempt.json", b"[]"),
    "clocks of no form": put("clocks.json", b'{"sandbox": 3}'),
    "achieved of no form": put("achieved.parquet", b"PAR1 and more"),
    "achieved of other columns": parquet("achieved.parquet", pa.table({"src": ["x"]})),
    "achieved of nulls": parquet("achieved.parquet", pa.table(dict.fromkeys(PROBED, pa.nulls(3, pa.int64())))),
    "first packets of no form": put("first_packets.parquet", b""),
    "manifest of a terabyte": sparse("manifest.json"),
    "attempt of a terabyte": sparse("attempt.json"),
    "manifest is a pipe": fifo("manifest.json"),
    "trace is a pipe": fifo("trace/2.jsonl"),
    "schedule is a pipe": fifo("schedule.jsonl"),
    "log is a pipe": fifo("analysis.log"),
}  # fmt: skip
"""What makes a run useless: the commands that need it say so."""

USUAL_DAMAGE = DAMAGE.keys() - {
    *(f"{name} {what}" for name in DOCUMENTS[1:] for what in ("empty", "no object", "deep", "no text")),
    *("achieved of no form", "achieved of nulls", "host of no number", "phase backwards", "clocks of no form"),
    *("attempt of a terabyte", "schedule is a pipe", "log is a pipe"),
}
"""What is tried in every run of the tests: the same functions read all documents, and one looks for pipes."""

ODD = {
    "no schedule": remove("schedule.jsonl"),
    "schedule of junk": append("schedule.jsonl", b"\xff junk\n{}\n"),
    "schedule of huge numbers": append(
        "schedule.jsonl", b'{"at_ns":%d,"node":0,"action":"publish","topics":[]}\n' % HUGE
    ),
    "schedule of deep lines": append("schedule.jsonl", b"[" * 5000 + b"\n"),
    "schedule of another node": append("schedule.jsonl", b'{"at_ns":1,"node":99,"action":"leave","topics":[]}\n'),
    "schedule of a key twice": append(
        "schedule.jsonl",
        b'{"at_ns":1,"at_ns":2,"node":1,"action":"publish","message_id":7,"topics":[0],"payload_bytes":1}\n',
    ),
    "trace of a node beyond the plan": put(
        "trace/77.jsonl",
        b'{"event":"start","ts_ns":998000000000,"node":77,"version":1,"topics":[0]}\n'
        b'{"event":"add_peer","ts_ns":998000000000,"node":77,"peer":0,"conn":"a","direction":"orig"}\n'
        b'{"event":"deliver","ts_ns":1001000000000,"node":77,"peer":0,"message_id":1,"topics":[0],"hops":1}\n',
    ),
    "trace of huge node numbers": append(
        "trace/0.jsonl",
        b'{"event":"add_peer","ts_ns":998000000000,"node":0,"peer":2000000000,"conn":"a","direction":"orig"}\n'
        b'{"event":"receive","ts_ns":998000000000,"node":0,"peer":-7,"kind":3,"conn":"a","direction":"orig","off":0,'
        b'"len_bytes":5,"message_id":9223372036854775807,"topics":[0],"hops":1,"ttl":1}\n'
        b'{"event":"deliver","ts_ns":-9223372036854775808,"node":2147483647,"message_id":-1,"topics":[9],"hops":1}\n',
    ),
    "schedule of a terabyte without a line's end": sparse("schedule.jsonl"),
    "no capture": lambda run_dir, home: shutil.rmtree(run_dir / "capture"),
    "capture of junk": put("capture/plane.pcapng", b"junk" * 1000),
    "plane of no form": put("dataplane.jsonl", b'{"at_ns":"x"}\n'),
    "plane of huge counts": put("dataplane.jsonl", b'{"at_ns":1000000000000,"frames_in":%d}\n' % HUGE),
    "pressure of no form": put("pressure.jsonl", b"[]\n"),
    "stalls of no form": put("stalls.jsonl", b'{"source":3}\n'),
    "probes of hosts beyond the plan": lambda run_dir, home: pq.write_table(
        (found := pq.read_table(run_dir / "achieved.parquet")).set_column(
            found.schema.get_field_index("src"), "src", pa.array([10**9] * found.num_rows)
        ),
        run_dir / "achieved.parquet",
    ),
    "text of a stranger": evil_names,
    "planted modules": lambda run_dir, home: [
        put(f"{name}.py", f"open({str(home / 'owned')!r}, 'w')".encode())(run_dir, home)
        for name in ("argparse", "numpy", "msgspec", "ctypes", "select", "metrics", "harness", "pandas")
    ],
    "left of an analysis": put(".analysis-x/ready/tables/x", b"x"),
    "tables of junk": put("tables/hops.parquet/part-0.parquet", b"junk"),
    "tables of other types": parquet(
        "tables/deliveries.parquet/part-0.parquet", pa.table({"node": ["x"], "message_id": ["y"]})
    ),
    "no tables": lambda run_dir, home: shutil.rmtree(run_dir / "tables"),
    "summary of no form": put("summary.json", b'{"verdict":7}'),
    "summary of evil names": edit("summary.json", at("headline", "<img src=x onerror=alert(1)>", value=1)),
    "summary of huge numbers": edit("summary.json", at("headline", "messages_published", value=HUGE)),
    "recording of junk": put("record/0.msgpack", b"\x00\x00\x00\x05junk" + DEEP),
    "recording of an endless length": put("record/0.msgpack", b"\xff\xff\xff\xff"),
}  # fmt: skip
"""What a command may go on without."""

USUAL_ODD = {
    "schedule of huge numbers",
    "schedule of a terabyte without a line's end",
    "capture of junk",
    "stalls of no form",
    "left of an analysis",
    "tables of other types",
    "summary of huge numbers",
    "recording of an endless length",
}
"""What is tried alone in every run of the tests: with ``TOGETHER``, at least one thing of each kind of file."""

TOGETHER = (
    "trace of huge node numbers",
    "plane of huge counts",
    "probes of hosts beyond the plan",
    "text of a stranger",
    "planted modules",
)
"""What pages show, or modules that may be imported for it: in every run of the tests, all at once, with pages."""


def odd_things() -> Iterator[Any]:
    """Yield every thing, and whether pages are made: that takes most of the time."""
    for thing in ODD:
        if thing in USUAL_ODD:
            yield thing, False
        yield pytest.param(thing, True, marks=pytest.mark.long)


class Home(NamedTuple):
    """What is the reader's: a folder that no command may touch, and where the commands may write."""

    folder: Path
    out: Path

    def digest(self) -> dict[str, str]:
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path): sha256(path.read_bytes()).hexdigest() for path in found}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    folder, out = tmp_path / "home", tmp_path / "out"
    (folder / "folder" / "old").mkdir(parents=True)
    out.mkdir()
    for name in ("secret", "folder/secret", "folder/old/tables"):
        (folder / name).write_text(SECRET)
    return Home(folder, out)


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may have more than a kilobyte, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def spoil(sound: Path, change: Change, home: Home, tmp_path: Path) -> Path:
    run_dir = tmp_path / "run"
    shutil.copytree(sound, run_dir)
    change(run_dir, home.folder)
    return run_dir


def written(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path.read_bytes()


def take_through(command: Callable[[Path, Path], Outcome], run_dir: Path, home: Home, monkeypatch: Any) -> Outcome:
    """Let a command read a run from inside its folder, and look at what is the reader's."""
    before = home.digest()
    modules = set(sys.modules)
    monkeypatch.chdir(run_dir)
    outcome = command(run_dir, home.out)
    assert home.digest() == before
    assert not any(SECRET.encode() in content for content in written(home.out))
    assert SECRET not in outcome.out + outcome.err
    loaded = {str(getattr(sys.modules[name], "__file__", "")) for name in set(sys.modules) - modules}
    assert not any(path.startswith(str(run_dir)) for path in loaded)
    assert all(letter.isprintable() or letter == "\n" for letter in outcome.out + outcome.err.replace("\t", ""))
    return outcome


@pytest.mark.parametrize("command", COMMANDS)
def test_a_sound_run_is_read(command: Any, sound: Path, home: Home, tmp_path: Path, monkeypatch: Any) -> None:
    run_dir = spoil(sound, lambda run_dir, home: None, home, tmp_path)
    outcome = take_through(command, run_dir, home, monkeypatch)
    if command is replay:
        assert outcome.status == 2 and "no recording" in outcome.err
    else:
        assert outcome.status == 0, outcome


@pytest.mark.parametrize("command", [tables, copy])
def test_a_full_disk_is_one_line(command: Any, sound: Path, home: Home, tmp_path: Path, small_disk: None) -> None:
    outcome = command(sound, home.out)
    assert outcome.status == 1 and in_one_line(outcome), outcome
    assert "File too large" in outcome.err


@pytest.mark.parametrize("thing", LINKS)
def test_a_link_is_refused_in_one_line(thing: str, sound: Path, home: Home, tmp_path: Path, monkeypatch: Any) -> None:
    run_dir = spoil(sound, LINKS[thing], home, tmp_path)
    for command in (*COMMANDS, serve):
        outcome = take_through(command, run_dir, home, monkeypatch)
        assert (outcome.status, in_one_line(outcome)) == (2, True), (command, outcome)
        assert f"{thing.partition(' -> ')[0]} is a symbolic link" in outcome.err, command


@pytest.mark.parametrize("thing", long_unless(USUAL_DAMAGE, DAMAGE))
def test_a_damaged_document_is_named_in_one_line(
    thing: str, sound: Path, home: Home, tmp_path: Path, monkeypatch: Any
) -> None:
    run_dir = spoil(sound, DAMAGE[thing], home, tmp_path)
    for command in (tables, report):
        outcome = take_through(command, run_dir, home, monkeypatch)
        assert (outcome.status, in_one_line(outcome)) == (2, True), outcome
        assert len(outcome.err) < 1000
        assert "damaged" in outcome.err or "pipe" in outcome.err
    big = "terabyte" in thing
    for command in (export, compare, replay, *(() if big else (copy,))):
        outcome = take_through(command, run_dir, home, monkeypatch)
        assert outcome.status == 0 or in_one_line(outcome), outcome


def is_harmless(page: Path) -> bool:
    """Whether nothing of the run is markup, and no page but the replay has scripts: its data and ours."""
    text, scripts = page.read_text(), 2 if page.name == Path(REPLAY_PAGE).name else 0
    return "<img src=x" not in text and text.count("<script") == text.count("</script") == scripts


@pytest.mark.parametrize(("thing", "pages"), odd_things())
def test_a_run_of_odd_things_is_read_or_refused(
    thing: str, pages: bool, sound: Path, home: Home, tmp_path: Path, monkeypatch: Any
) -> None:
    run_dir = spoil(sound, ODD[thing], home, tmp_path)
    big = "terabyte" in thing
    compared, reported = (functools.partial(command, page=pages) for command in (compare, report))
    for command in (export, compared, replay, reported, *(() if big else (copy,))):
        shutil.rmtree(home.out)
        home.out.mkdir()
        outcome = take_through(command, run_dir, home, monkeypatch)
        assert outcome.status in (0, 3) or (outcome.status == 2 and in_one_line(outcome)), (command, outcome)
        if command is reported:
            assert outcome.status == 0, outcome
        assert all(map(is_harmless, home.out.glob("*.html")))
    assert (run_dir / "report").exists() == pages
    assert all(map(is_harmless, run_dir.glob("report/*.html")))


def test_pages_of_a_run_of_odd_things_are_harmless(sound: Path, home: Home, tmp_path: Path, monkeypatch: Any) -> None:
    run_dir = spoil(sound, lambda run_dir, home: [ODD[thing](run_dir, home) for thing in TOGETHER], home, tmp_path)
    for command in (export, compare, copy, replay, report):
        outcome = take_through(command, run_dir, home, monkeypatch)
        assert outcome.status in (0, 3) or (command is replay and in_one_line(outcome)), (command, outcome)
    pages = [*home.out.glob("*.html"), *run_dir.glob("report/*.html")]
    assert len(pages) == 3, "of the comparison, the report and the replay"
    assert all(map(is_harmless, pages))
