"""Matrices from CSV: forms that are read, faults that are named, values that stay as they are."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from tests.matrices import read_matrix
from topologies.importers import Options
from topologies.importers.matrix import read_file, write_matrix
from topologies.reading import InputError

EXPECTED = "expected a matrix with one row and one column per host"

FAULTS = {
    "empty": ("", ": no rows"),
    "comment_only": ("# nothing\n\n", ": no rows"),
    "header_only": ("a,b,c\n", ": expected at least two rows, one per host, got 0"),
    "one_row": ("0\n", ": expected at least two rows, one per host, got 1"),
    "endless_cell": ("0,1\n1," + "9" * 200_000 + "\n", ":2: field larger than field limit (131072)"),
    "not_square": ("0,1,2\n1,0,3\n", ":1: expected 2 delays, one per row, got 3"),
    "short_row": ("0,1,2\n1,0\n2,3,0\n", ":2: expected 3 delays, one per row, got 2"),
    "long_row": ("0,1\n1,0,5\n", ":2: expected 2 delays, one per row, got 3"),
    "word": ("0,1\nx,0\n", ":2:1: expected a delay in ms, got 'x'"),
    "word_with_labels": ("p,0,1\nq,fast,0\n", ":2:2: expected a delay in ms, got 'fast'"),
    "blank_cell": ("0,1,2\n1,0,\n2,3,0\n", ":2:3: expected a delay in ms, got ''"),
    "decimal_comma": (
        ";x;y\nx;0;10,5\ny;10,5;0\n",
        ":2:3: expected a delay in ms, got '10,5'; write numbers with a decimal point",
    ),
    "decimal_comma_without_names": (
        "0\t10,5\t20\n10,5\t0\t7\n20\t7\t0\n",
        ":1:2: expected a delay in ms, got '10,5'; write numbers with a decimal point",
    ),
    "nan": ("0,nan\n1,0\n", ":1:2: expected a finite delay >= 0, got nan"),
    "infinite": ("0,1\ninf,0\n", ":2:1: expected a finite delay >= 0, got inf"),
    "negative": ("0,1\n-2,0\n", ":2:1: expected a finite delay >= 0, got -2"),
    "disorder": (
        "a,b,c\n8,0,5\n0,9,5\n5,0,9\n",
        ": most hosts have a larger delay to themselves than to others; are rows and columns in the same order?",
    ),
    "negative_own": ("-1,1\n1,0\n", ":1:1: expected a finite delay >= 0, got -1"),
    "own_word": ("0,1\n1,zero\n", ":2:2: expected a delay in ms, got 'zero'"),
    "too_long_a_delay": ("0,60000.5\n1,0\n", ":1:2: expected a delay in ms, at most 60000, got 60000.5"),
    "underscore": ("0,1_0\n1,0\n", ":1:2: expected a delay in ms, got '1_0'"),
    "full_width": ("0,\uff15\n1,0\n", ":1:2: expected a delay in ms, got '\uff15'"),
    "thousand_digits": ("0," + "1" * 1000 + "\n1,0\n", f":1:2: expected a delay in ms, got '{'1' * 40}'"),
    "missing_delay": ("0,-\n1,0\n", ":1:2: expected a delay in ms, got '-'"),
    "ids_with_a_corner": (
        "0,1,2,3\n1,0,5,6\n2,5,0,7\n3,6,7,0\n",
        ": the first row and the first column are both 1, 2, 3; "
        "write host into the corner if these are names, or add a header if they are delays",
    ),
    "ids_or_delays": (
        ",4,9\n4,,7\n9,7,\n",
        ": the first row and the first column are both 4, 9; "
        "write host into the corner if these are names, or add a header if they are delays",
    ),
    "pairs": ("a b 10\na c 20\nb c 5\n", f": this is a list of pairs, {EXPECTED}"),
    "pairs_of_numbers": ("0,1,10\n0,2,20\n1,2,5\n", f": this is a list of pairs, {EXPECTED}"),
    "pairs_with_header": ("from,to,ms\na,b,10\nb,a,20\n", f": this is a list of pairs, {EXPECTED}"),
    "json": ('{"a": {"b": 5}}', f": this is JSON, {EXPECTED}"),
    "json_list": ("[[0, 5], [5, 0]]", f": this is JSON, {EXPECTED}"),
    "gml": ('Creator "x"\ngraph [\n  node [ id 0 ]\n]\n', f": this is GML, {EXPECTED}"),
    "graphml": ('<?xml version="1.0"?>\n<graphml xmlns="x">\n</graphml>', f": this is GraphML, {EXPECTED}"),
    "xml": ("<html></html>", f": this is XML or HTML, {EXPECTED}"),
    "dot": ("digraph g {\n a -> b;\n}", f": this is Graphviz DOT, {EXPECTED}"),
    "same_names": ("a,a\n0,1\n1,0\n", ": expected 2 different names, got 1"),
    "names_differ": (",a,b\na,0,1\nc,1,0\n", ": the names of the columns differ from those of the rows"),
    "header_too_short": ("a\n0,1\n1,0\n", ":1: expected 2 names of columns, one per row, got 1"),
    "header_too_long": (",a,b\n0,1\n1,0\n", ":1: expected 2 names of columns, one per row, got 3"),
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
    for path, problem in ((tmp_path / "none.csv", "No such file or directory"), (binary, "not UTF-8 text at byte 2")):
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
        ("0\t5\n7\t0\n", ["host 0", "host 1"]),
        ("\tSan José\tb c\nSan José\t0\t5\nb c\t7\t0\n", ["San José", "b c"]),
        ("  0   5\n\t7 0  \n", ["host 0", "host 1"]),
        ('a "b c"\n0 5\n7 0\n', ["a", "b c"]),
        ("x a b\na 0 5\nb 7 0\n", ["a", "b"]),
        ("a b\na 0 5\nb 7 0\n", ["a", "b"]),
        (";a;b\na;0;5\nb;7;0\n", ["a", "b"]),
        (",a,b,\na,0,5,\nb,7,0,\n", ["a", "b"]),
        (",a,b\na,0,5,\nb,7,0,\n", ["a", "b"]),
        (",a,b,\na,0,5\nb,7,0\n", ["a", "b"]),
        ("0,5,\n7,0,\n", ["host 0", "host 1"]),
        (",a,b\na,,5\nb,7,\n", ["a", "b"]),
        (",5\n7,\n", ["host 0", "host 1"]),
        ("-,5\n7,-\n", ["host 0", "host 1"]),
        ("from/to,a,b\na,\u2014,5\nb,7,\u2014\n", ["a", "b"]),
        ("a,b\nNaN,5\n7,NaN\n", ["a", "b"]),
        (",a,b\na,0.4,5\nb,7,0.3\n", ["a", "b"]),
        (",0,1\n0,0,5\n1,7,0\n", ["0", "1"]),
        ("host,3,8\n3,0,5\n8,7,0\n", ["3", "8"]),
        ("0,1\n0,0,5\n1,7,0\n", ["0", "1"]),
        ("0,1\n0,5\n7,0\n", ["0", "1"]),
        ("1,0,5\n2,7,0\n", ["1", "2"]),
        (",Nan,Inf\nNan,0,5\nInf,7,0\n", ["Nan", "Inf"]),
        ("Nan,0,5\nInf,7,0\n", ["Nan", "Inf"]),
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
    assert read_file(path, Options()).underlay.delay_ms.tolist() == [[0, 100, 1], [90, 0, 1], [1, 1, 0]]


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
    (tmp_path / "rtt.csv").write_text("0,120000\n14,0\n")
    assert main([*_import(tmp_path / "rtt.csv", tmp_path / "out.csv"), "--rtt"]) == 0


def test_symmetric_matrices_need_no_names(tmp_path: Path) -> None:
    for corner, own in (("0", "0"), ("", ""), ("-", "-")):
        (tmp_path / "m.csv").write_text(f"{corner},10.5,20\n10.5,{own},30\n20,30,{own}\n")
        names, found = read_matrix(tmp_path / "m.csv")
        assert names == ["host 0", "host 1", "host 2"]
        assert found.tolist() == [[0, 10.5, 20], [10.5, 0, 30], [20, 30, 0]]


def test_import_prints_what_shows_a_wrong_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.csv").write_text(",a,b,c\na,0.5,10,20\nb,14,0,0\nc,20,3,0.25\n")
    assert main(_import(tmp_path / "m.csv", tmp_path / "out.csv")) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'out.csv'}: one-way delays in ms between 3 hosts",
        "RTT: median 24.000 ms, largest 40.000 ms (a - c)",
        "tails: hosts with the largest median RTT (and its multiple of all pairs' median): "
        "a 32.0 ms (1.3x), c 21.5 ms (0.9x), b 13.5 ms (0.6x)",
        "asymmetry: 2 of 3 pairs; the delays of the two directions differ by 3.000 ms (28.6%) at the median "
        "and 4.000 ms (100.0%) at most",
        "detours: 33.3% of the directed pairs are slower than over the best relay, 33.3% by more than a tenth",
        "zeros: 1 of 6 directed pairs have a delay of 0 ms",
        "source: not stated; date: not stated; licence: not stated",
        f"file: m.csv, SHA-256 {hashlib.sha256((tmp_path / 'm.csv').read_bytes()).hexdigest()}",
        "times: one-way",
        "ignored: the delays of 2 hosts to themselves, at most 0.5 ms in the file",
    ]
    (tmp_path / "m.csv").write_text("0,10\n10,0\n")
    assert main(_import(tmp_path / "m.csv", tmp_path / "out.csv")) == 0
    assert capsys.readouterr().out.splitlines()[1:6] == [
        "RTT: median 20.000 ms, largest 20.000 ms (host 0 - host 1)",
        "tails: hosts with the largest median RTT (and its multiple of all pairs' median): "
        "host 0 20.0 ms (1.0x), host 1 20.0 ms (1.0x)",
        "asymmetry: none",
        "detours: 0.0% of the directed pairs are slower than over the best relay, 0.0% by more than a tenth",
        "zeros: none",
    ]


def test_plan_prints_the_round_trip_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.csv").write_text("0,10,20\n14,0,0\n20,3,0\n")
    experiment = tmp_path / "x.toml"
    experiment.write_text('name = "x"\n[underlay]\nkind = "matrix"\npath = "m.csv"\n[random]\ndegree = 1\n')
    assert main(["plan", str(experiment)]) == 0
    expected = "rtt          median 24.0 ms, largest 40.0 ms, 0 directed pairs filled, 1 directed pairs of 0 ms"
    assert expected in capsys.readouterr().out.splitlines()


def test_a_matrix_of_too_many_hosts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("0\n" * 10_002)
    with pytest.raises(InputError, match="expected at most 10000 hosts, got 10002 rows"):
        read_matrix(tmp_path / "m.csv")


def _import(source: Path, destination: Path) -> list[str]:
    return ["import", "matrix", str(source), "--out", str(destination)]
