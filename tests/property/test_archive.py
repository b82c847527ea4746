"""What a machine sends home cannot touch anything but the files that were asked of it."""

import gzip
import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.deployment.agents import files_of
from harness.deployment.archive import ArchiveError, extract

EXPECTED = files_of("m0", (0, 3))
OTHERS = ("plan.json", "trace/1.jsonl", "exits-m1.jsonl", "logs/agent-m0.log")
BUDGET_BYTES = 40_000

NAMES = st.sampled_from(
    [
        *EXPECTED, *EXPECTED, *OTHERS, "exits-m0.jsonl", "trace", "trace/", ".", "..", "", "/etc/hostname", "nothing",
        "trace/../plan.json", "../outside", "trace/0.jsonl/", "./trace/0.jsonl", "trace//0.jsonl", "a\nb", "t" * 300,
    ]
)  # fmt: skip
TYPES = st.sampled_from(
    [
        tarfile.REGTYPE, tarfile.REGTYPE, tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE,
        tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE,
        tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE, b"?",
    ]
)  # fmt: skip
FORMATS = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])


@st.composite
def members(draw: st.DrawFn) -> tuple[tarfile.TarInfo, bytes, int | None]:
    """A header, what follows it, and the size that the header lies about, if it does."""
    member = tarfile.TarInfo(draw(NAMES))
    member.type = draw(TYPES)
    member.linkname = draw(st.sampled_from(["", "plan.json", "../plan.json", "/etc/passwd", "trace/0.jsonl"]))
    member.mode = draw(st.sampled_from([0o644, 0o4755, 0]))
    content = draw(st.binary(max_size=1500)) * draw(st.sampled_from([1, 1, 1, 40]))
    lie = draw(st.sampled_from([None, None, None, 0, 10**6, 2**40]))
    return member, content, lie


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """A gzipped stream of members, perhaps cut short or with a byte changed."""
    plain = io.BytesIO()
    for member, content, lie in draw(st.lists(members(), max_size=6)):
        member.size = len(content) if lie is None else lie
        try:
            plain.write(member.tobuf(draw(FORMATS)))
        except ValueError:  # too much for this format
            continue
        plain.write(content + b"\0" * (-len(content) % tarfile.BLOCKSIZE))
    plain.write(b"\0" * draw(st.sampled_from([0, 512, 1024, 10_240, 10**6])))
    stream = bytearray(gzip.compress(plain.getvalue()))
    if draw(st.booleans()):
        place = draw(st.integers(0, len(stream) - 1))
        stream[place] ^= draw(st.integers(0, 255))
    if draw(st.booleans()):
        del stream[draw(st.integers(0, len(stream))) :]
    return bytes(stream)


def snapshot(folder: Path) -> dict[str, object]:
    """Everything below a folder, without the files that were asked for."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_file():
            found[name] = (path.read_bytes(), path.stat().st_mode)
        elif name not in ("run/trace", "run/logs", "run/record", "run/output"):
            found[name] = "folder"
    return found


@given(stream=archives(), link=st.booleans())
def test_nothing_but_what_was_asked_for_is_made_or_changed(stream: bytes, link: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_dir = folder / "run"
        for other in (*OTHERS, "../outside", "trace/3.jsonl"):
            path = run_dir / other
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("as it was")
        if link:
            (run_dir / "logs/0.log").symlink_to(run_dir / "plan.json")
        before = snapshot(folder)
        try:
            extract(io.BytesIO(stream), EXPECTED, run_dir, BUDGET_BYTES)
        except ArchiveError as error:
            assert "\n" not in str(error)
        after = snapshot(folder)
        new = {name: after.pop(name) for name in set(after) - set(before)}
        assert after == before
        assert set(new) <= {f"run/{path}" for path in EXPECTED.values()}
        assert all(mode & 0o7133 == 0 for _, mode in new.values())
        assert sum(len(content) for content, _ in new.values()) <= BUDGET_BYTES


def pack(*names: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"line\n") -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, len(content)
            archive.addfile(member, io.BytesIO(content))
    packed.seek(0)
    return packed


def test_what_was_asked_for_arrives_under_its_own_name(tmp_path: Path) -> None:
    extract(pack("trace/3.jsonl", "exits.jsonl"), EXPECTED, tmp_path, BUDGET_BYTES)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        "trace/3.jsonl", "exits-m0.jsonl"
    }  # fmt: skip
    assert (tmp_path / "exits-m0.jsonl").read_bytes() == b"line\n"


def test_each_refusal_names_the_member(tmp_path: Path) -> None:
    refusals = [
        (pack("trace/../plan.json"), r"'trace/\.\./plan\.json', which was not requested"),
        (pack("surprise"), "'surprise', which was not requested"),
        (pack("trace/0.jsonl", kind=tarfile.SYMTYPE), r"'trace/0\.jsonl', which is not a regular file"),
        (pack("trace/3.jsonl", "trace/3.jsonl"), r"'trace/3\.jsonl', but .* exists already"),
        (pack("logs/3.log", content=bytes(10**6)), r"more than 0 MiB, at logs/3\.log"),
        (io.BytesIO(pack("logs/0.log").read()[:-20]), "damaged archive"),
        (io.BytesIO(gzip.compress(b"")), "ends within a header"),
    ]
    for stream, words in refusals:
        with pytest.raises(ArchiveError, match=words):
            extract(stream, EXPECTED, tmp_path, BUDGET_BYTES)
    assert (tmp_path / "logs/3.log").stat().st_size <= BUDGET_BYTES


def test_packed_bytes_that_unpack_to_nothing_are_counted(tmp_path: Path) -> None:
    members_without_content = gzip.compress(b"") * (BUDGET_BYTES // 20 + 10_000)
    stream = io.BytesIO(members_without_content)
    with pytest.raises(ArchiveError, match="more than 0 MiB, packed"):
        extract(stream, EXPECTED, tmp_path, BUDGET_BYTES)
    assert stream.tell() < len(members_without_content)
