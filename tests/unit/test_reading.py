"""Files that a user names: only regular ones are opened, to a limit, and every problem is one error."""

import gzip
import os
from pathlib import Path

import pytest

from topologies.reading import (
    InputError,
    find_separator,
    hint_at_comma,
    is_numeric,
    parse_count,
    parse_number,
    quote_cell,
    read_text,
    split_rows,
    stream_rows,
)


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        (b"a,b\n", "x.csv", "a,b\n"),
        (b"\xef\xbb\xbfa,b\n", "x.csv", "a,b\n"),
        (gzip.compress(b"a,b\n", mtime=0), "x.csv.gz", "a,b\n"),
        (gzip.compress(b"\xef\xbb\xbfa,b\n", mtime=0), "x.csv", "a,b\n"),
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
        (gzip.compress(bytes(range(256)) * 9, mtime=0)[:-20], "cannot be unpacked: "),
        (b"x" * 1001, "expected at most 1,000 bytes, got more"),
        (gzip.compress(b"x" * 100_000, mtime=0), "expected at most 1,000 bytes, got more"),
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


@pytest.mark.parametrize("text", ["12,5", "-0,25", "1.234,5", "1.234.567,5", "2,5e3"])
def test_a_decimal_comma_makes_no_number_and_is_named(text: str) -> None:
    assert parse_number(text) is None and is_numeric(text)
    assert quote_cell(text) == f"{text!r}; write numbers with a decimal point"


@pytest.mark.parametrize("text", ["", "a", "1,", ",5", "1,2,3", "1,234.5", "12.34,5", "1;5", "a,5", "1" * 400 + ",5"])
def test_other_commas_are_not(text: str) -> None:
    assert not is_numeric(text) and hint_at_comma(text) == ""
    assert quote_cell(text) == repr(text[:40])


def test_a_number_is_numeric_and_needs_no_hint() -> None:
    assert is_numeric("12.5") and quote_cell("12.5") == "'12.5'"


@pytest.mark.parametrize(
    ("line", "separator"),
    [
        ("a,b,12.5", ","),
        ("a;b;12.5", ";"),
        ("a;b;12,5", ";"),
        ("a\tb\t12,5", "\t"),
        ("0;10,5;20,25", ";"),
        ('"a";"b";"12,5"', ";"),
        ("0,1", ","),
        ("host 1,host 2,12", ","),
        ("a b 12", " "),
        ("a,b", ","),
        ("", ","),
    ],
)
def test_the_separator_is_found_beside_decimal_commas(line: str, separator: str) -> None:
    assert find_separator(f"header\n{line}\n") == separator
