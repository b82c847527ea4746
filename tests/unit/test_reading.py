"""Files that a user names: only regular ones are opened, to a limit, and every problem is one error."""

import gzip
import os
from pathlib import Path

import pytest

from topologies.reading import InputError, parse_count, parse_number, read_text, split_rows, stream_rows


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        (b"a,b\n", "x.csv", "a,b\n"),
        (b"\xef\xbb\xbfa,b\n", "x.csv", "a,b\n"),
        (gzip.compress(b"a,b\n"), "x.csv.gz", "a,b\n"),
        (gzip.compress(b"\xef\xbb\xbfa,b\n"), "x.csv", "a,b\n"),
        (b"", "x.csv", ""),
    ],
)
def test_text_is_read_with_and_without_mark_and_compression(
    content: bytes, name: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert read_text(path) == text
    assert list(stream_rows(path)) == ([["a", "b"]] if text else [])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a\xffb", "not UTF-8 text at byte 1"),
        ("name".encode("utf-16"), "expected UTF-8 text, got UTF-16 text"),
        (b"PK\x03\x04\xff", "expected UTF-8 text, got a ZIP archive or a spreadsheet"),
        (b"\x93NUMPY\x01\x00", "expected UTF-8 text, got a NumPy array"),
        (b"\x1f\x8b cut", "cannot be unpacked: "),
        (gzip.compress(bytes(range(256)) * 9)[:-20], "cannot be unpacked: "),
        (b"x" * 1001, "expected at most 1,000 bytes, got more"),
        (gzip.compress(b"x" * 100_000), "expected at most 1,000 bytes, got more"),
    ],
)
def test_other_content_is_refused(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_text(path, most_bytes=1000)
    assert caught.value.place == str(path)
    assert caught.value.problem.startswith(problem)


def test_pipes_devices_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # nobody writes: a plain open would wait for ever
    for path, problem in (
        (pipe, "expected a regular file, got a pipe"),
        (Path("/dev/zero"), "expected a regular file, got a character device"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file or directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (Path("a\0b"), "embedded null byte"),
    ):
        for read in (read_text, lambda path: list(stream_rows(path))):
            with pytest.raises(InputError) as caught:
                read(path)
            assert caught.value.problem == problem


def test_rows_leave_out_blank_lines_and_comments(tmp_path: Path) -> None:
    text = '# a "comment\n\n "b c" , d\r\n,\n"e\nf",g\n'.replace('"comment', "comment")
    assert split_rows(tmp_path, text) == [(3, ["b c", "d"]), (6, ["e\nf", "g"])]
    assert split_rows(tmp_path, '  a \t "b  c"   d  \n', " ") == [(1, ["a", "b c", "d"])]
    with pytest.raises(InputError, match=r":1: field larger than field limit"):
        split_rows(tmp_path, '"' + "x" * 200_000)


@pytest.mark.parametrize("text", ["1", "+1", "-1.5", ".5", "5.", "1e3", "1E-3", "0" * 300])
def test_decimal_numbers_are_read(text: str) -> None:
    assert parse_number(text) == float(text)


@pytest.mark.parametrize(
    "text", ["", "1_0", "\uff15", "nan", "inf", "0x1", "1,5", " 1", "1e", ".", "9" * 401, "1e99999"]
)
def test_other_texts_are_no_numbers(text: str) -> None:
    assert parse_number(text) is None
    assert parse_count(text) is None


def test_counts_are_whole() -> None:
    assert [parse_count(text) for text in ("0", "17", "-1", "1.0", "\uff15", "9" * 5000)] == [0, 17, *[None] * 4]
