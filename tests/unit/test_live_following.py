"""Files that grow are read line by line, and nothing but regular files is opened."""

import json
import os
from pathlib import Path

import pytest

from harness.live.following import MOST_BYTES, Followed, is_locked, open_plain, read_tail


def test_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    file = Followed([path], json.loads)
    assert (file.exists, file.read()) == (False, [])
    path.write_bytes(b"1\n2\n3")
    assert file.read() == [1, 2]
    with path.open("ab") as more:
        more.write(b"4\n5\n")
    assert file.read() == [34, 5]
    assert file.read() == []


def test_a_long_file_is_read_to_its_end(tmp_path: Path) -> None:
    count = MOST_BYTES // 8 + 10
    (tmp_path / "lines").write_bytes(b"".join(b"%08d\n" % number for number in range(count)))
    file = Followed([tmp_path / "lines"], int)
    first = file.read()
    assert 0 < len(first) < count
    assert first + file.read_all() == list(range(count))
    assert file.read_all() == []


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"1\nx\n2\n")
    assert Followed([tmp_path / "lines"], json.loads).read() == [1, 2]


def test_a_line_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"1\n" + b"9" * 100 + b"\n2\n")
    file = Followed([tmp_path / "lines"], json.loads)
    found = [value for _ in range(20) for value in file.read(16)]
    assert (found[0], found[-1]) == (1, 2)
    assert file.offset == 105


def test_a_file_is_read_on_in_the_place_to_which_it_was_moved(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    file = Followed([first, second], json.loads)
    first.write_bytes(b"1\n")
    assert file.read() == [1]
    first.unlink()
    second.write_bytes(b"1\n2\n")
    assert file.read() == [2]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("1\n")
    path = tmp_path / "lines"
    make = {"link": lambda: path.symlink_to(tmp_path / "secret"), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}
    make[kind]()
    with pytest.raises(OSError):
        open_plain(path).close()
    assert Followed([path], json.loads).read() == []


def test_a_missing_file_is_not_locked(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "missing")


@pytest.mark.parametrize(("most", "tail"), [(100, b"one\ntwo\nthree\n"), (9, b"three\n"), (3, b"")])
def test_the_end_of_a_file_begins_with_a_whole_line(tmp_path: Path, most: int, tail: bytes) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\nthree\n")
    assert read_tail(tmp_path / "log", most) == tail
