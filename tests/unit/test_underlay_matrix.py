"""Matrices from CSV: forms that are read, faults that are named, values that stay as they are."""

from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from topologies.matrix import matrix_underlay, read_matrix, write_matrix

FAULTS = {
    "empty": ("", ": no rows"),
    "comment_only": ("# nothing\n\n", ": no rows"),
    "header_only": ("a,b,c\n", ": expected at least two rows, one per host, got 0"),
    "one_row": ("0\n", ": expected at least two rows, one per host, got 1"),
    "trailing_comma": ("0,1,\n1,0,\n", ":1: expected 2 delays, one per row, got 3"),
    "endless_cell": ("0,1\n1," + "9" * 200_000 + "\n", ":2: field larger than field limit (131072)"),
    "not_square": ("0,1,2\n1,0,3\n", ":1: expected 2 delays, one per row, got 3"),
    "short_row": ("0,1,2\n1,0\n2,3,0\n", ":2: expected 3 delays, one per row, got 2"),
    "long_row": ("0,1\n1,0,5\n", ":2: expected 2 delays, one per row, got 3"),
    "word": ("0,1\nx,0\n", ":2:1: expected a delay in ms, got 'x'"),
    "word_with_labels": ("p,0,1\nq,fast,0\n", ":2:2: expected a delay in ms, got 'fast'"),
    "blank_cell": ("0,1,2\n1,0,\n2,3,0\n", ":2:3: expected a delay in ms, got ''"),
    "nan": ("0,nan\n1,0\n", ":1:2: expected a finite delay >= 0, got nan"),
    "infinite": ("0,1\ninf,0\n", ":2:1: expected a finite delay >= 0, got inf"),
    "negative": ("0,1\n-2,0\n", ":2:1: expected a finite delay >= 0, got -2"),
    "diagonal": ("0,1\n1,3\n", ":2:2: expected 0, a host's delay to itself, got 3"),
    "same_names": ("a,a\n0,1\n1,0\n", ": expected 2 different names, got 1"),
    "names_differ": (",a,b\na,0,1\nc,1,0\n", ": the names of the columns differ from those of the rows"),
    "header_too_short": ("a\n0,1\n1,0\n", ": expected 2 different names, got 1"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_malformed_matrix_is_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, problem = FAULTS[case]
    matrix = tmp_path / "m.csv"
    matrix.write_text(text)
    experiment = tmp_path / "x.toml"
    experiment.write_text('name = "x"\n[underlay]\nkind = "matrix"\npath = "m.csv"\n[random]\ndegree = 1\n')
    for arguments in (["plan", str(experiment), "--out", str(tmp_path / "out")], _import(matrix, tmp_path / "out")):
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.err == f"trellis {arguments[0]}: {matrix}{problem}\n"
        assert captured.out == ""
        assert not (tmp_path / "out").exists()


def test_missing_and_binary_matrix_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"0,\xff\n1,0\n")
    for path, problem in ((tmp_path / "none.csv", "No such file or directory"), (binary, "not UTF-8 text")):
        assert main(_import(path, tmp_path / "out.csv")) == 2
        assert capsys.readouterr().err == f"trellis import: {path}: {problem}\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0,5\n7,0\n", ["host 0", "host 1"]),
        ("a,b\n0,5\n7,0\n", ["a", "b"]),
        ("a,0,5\nb,7,0\n", ["a", "b"]),
        (",a,b\na,0,5\nb,7,0\n", ["a", "b"]),
        ("# one-way ms\n\n,a,b\r\na, 0 ,5\r\nb,7,0\r\n", ["a", "b"]),
        ('﻿"a, the first",b\n0,5\n7,0\n', ["a, the first", "b"]),
    ],
)
def test_forms_are_read_alike(text: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(text.encode())
    found, matrix = read_matrix(path)
    assert found == names
    assert matrix.tolist() == [[0, 5], [7, 0]]


def test_triangle_violations_and_directions_stay(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text("0,100,1\n90,0,1\n1,1,0\n")
    assert matrix_underlay(path).delay_ms.tolist() == [[0, 100, 1], [90, 0, 1], [1, 1, 0]]


def test_written_matrices_read_back(tmp_path: Path) -> None:
    delay_ms = np.array([[0, 1.2345678], [2.5, 0]])
    write_matrix(tmp_path / "m.csv", ["São Paulo", "b, c"], delay_ms)
    names, found = read_matrix(tmp_path / "m.csv")
    assert names == ["São Paulo", "b, c"]
    assert np.array_equal(found, np.round(delay_ms, 6))


def test_import_halves_round_trips_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rtt.csv").write_text("0,10\n14,0\n")
    assert main([*_import(tmp_path / "rtt.csv", tmp_path / "out.csv"), "--rtt"]) == 0
    assert "between 2 hosts" in capsys.readouterr().out
    assert read_matrix(tmp_path / "out.csv")[1].tolist() == [[0, 5], [7, 0]]


def _import(source: Path, destination: Path) -> list[str]:
    return ["import", "matrix", str(source), "--out", str(destination)]
