"""Interests, sessions and graphs of followers in the forms that other programs write, and those that are refused."""

import gzip
from pathlib import Path
from random import Random

import pytest

from harness.cli import main
from harness.errors import ExperimentError
from harness.workload.files import read_interests, read_sessions
from harness.workload.follower_graph import sample_followers

INF = float("inf")


@pytest.mark.parametrize(
    ("text", "sessions"),
    [
        ("a,0,5\nb,1,2\na,7,9\n", [[(0, 5), (7, 9)], [(1, 2)]]),
        ("\ufeffnode,from_s,to_s\na,0,5\n", [[(0, 5)]]),
        ('"node","from_s","to_s"\n"a","0",5\n', [[(0, 5)]]),
        ("# a trace\n\nnode,start_s,end_s\na, 0 , 5\r\n", [[(0, 5)]]),
        ("host,start (s),end (s)\na,0,5\n", [[(0, 5)]]),
        ("a,0,inf\nb,3,Infinity\n", [[(0, INF)], [(3, INF)]]),
        ("a,-1e300,1e300\n", [[(-1e300, 1e300)]]),
    ],
)
def test_sessions_are_read(text: str, sessions: list[list[tuple[float, float]]], tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(text, encoding="utf-8")
    assert read_sessions(path) == sessions
    packed = tmp_path / "s.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_sessions(packed) == sessions


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,5,5\n", ":1: expected node,from_s,to_s with from < to, got 'a,5,5'"),
        ("a,0\n", ":1: expected node,from_s,to_s"),
        ("a,0,1,2\n", ":1: expected node,from_s,to_s"),
        ("a 0 1\n", ":1: expected node,from_s,to_s"),
        ("a,0,\n", ":1: expected node,from_s,to_s"),
        ("a,nan,1\n", ":1: expected node,from_s,to_s"),
        ("a,-inf,1\n", ":1: expected node,from_s,to_s"),
        ("a,inf,inf\n", ":1: expected node,from_s,to_s"),
        ("a,0,1_0\n", ":1: expected node,from_s,to_s"),
        ("node,from_s,to_s\na,2020-01-01T00:00,2020-01-02T00:00\n", ":2: expected node,from_s,to_s"),
        (f"a,0,{'9' * 5000}\n", ":1: expected node,from_s,to_s"),
        ("", ": no sessions"),
        ("node,from_s,to_s\n", ": no sessions"),
    ],
)
def test_other_sessions_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text(text)
    with pytest.raises(ExperimentError) as caught:
        read_sessions(path)
    assert str(caught.value).startswith(f"{path}{problem}")
    assert len(str(caught.value)) < len(str(path)) + 150


TRACE = 'name = "x"\n[underlay]\nhosts = 2\n[random]\ndegree = 1\n[churn]\nkind = "sessions"\npath = "s.csv"\n'


def check(folder: Path, sessions: str, more: str = "") -> int:
    (folder / "s.csv").write_text(sessions)
    (folder / "x.toml").write_text(TRACE + more)
    return main(["check", str(folder / "x.toml")])


@pytest.mark.parametrize(
    ("sessions", "more", "problem"),
    [
        (
            "a,1714521600000,1714525200000\nb,1714521600000,inf\n",
            "",
            "no node is up between 0 and 38 s; the trace begins at 1714521600000",
        ),
        ("a,0,5\nb,0,7\n", "origin_s = 100\n", "no node is up between 100 and 138 s; the trace ends at 7"),
        ("a,0,5\nb,200,inf\n", "origin_s = 100\nspeedup = 2\n", "no node is up between 100 and 176 s"),
    ],
)
def test_a_trace_in_which_nobody_is_up_is_refused(
    sessions: str, more: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path, sessions, more) == 2
    assert capsys.readouterr().err == f"trellis check: {tmp_path / 's.csv'}: {problem}\n"


def test_an_open_session_lasts_until_the_end(tmp_path: Path) -> None:
    from harness.experiment.sections.workload import ChurnSpec
    from harness.workload.churn import Session, Span, draw_sessions

    (tmp_path / "s.csv").write_text("a,5,inf\nb,-1e300,1e300\n")
    drawn = draw_sessions(ChurnSpec(kind="sessions", path="s.csv"), 2, Span(0, 10**10), 1, tmp_path)
    assert drawn == ((Session(5 * 10**9, 10**10, False),), (Session(0, 10**10, False),))
    assert check(tmp_path, "a,0,inf\nb,0,inf\n") == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("i.csv", "0,1\n2,0\n2,1\n"),
        ("i.csv", "\ufeffnode,topic\n0,1\n2,0\n2,1\n"),
        ("i.csv", '"Node","Topic"\n"0","1"\n2,0\n2,1\n'),
        ("i.csv", "# mine\n\nnode,topic\n0, 1\n2,0\n2,1\n"),
        ("i.jsonl", '\ufeff{"node": 0, "topics": [1]}\n\n{"node": 2, "topics": [0, 1]}\n'),
        ("i.jsonl.gz", '{"node": 0, "topics": [1]}\n{"node": 2, "topics": [0, 1]}\n'),
    ],
)
def test_interests_are_read(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert read_interests(path, 3, 2) == ((1,), (), (0, 1))


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("i.csv", "0,1,2\n", ":1: expected node,topic as two numbers, got '0,1,2'"),
        ("i.csv", "0,-1\n", ":1: expected node,topic as two numbers"),
        ("i.csv", f"0,{'9' * 5000}\n", ":1: expected node,topic as two numbers"),
        ("i.csv", f"0,{'9' * 300}\n", ":1: expected a topic from 0 to 1, got 999"),
        ("i.csv", "3,0\n", ":1: expected a node from 0 to 2, got 3"),
        ("i.jsonl", '{"node": ' + "9" * 5000 + ', "topics": []}\n', ":1: "),
        ("i.jsonl", '{"node": ' + "[" * 50_000, ":1: "),
        ("i.jsonl", "0,1\n", ":1: "),
    ],
)
def test_other_interests_are_refused(name: str, text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ExperimentError) as caught:
        read_interests(path, 3, 2)
    assert str(caught.value).startswith(f"{path}{problem}")
    assert len(str(caught.value)) < len(str(path)) + 150


GRAPH = ((0, 1, 2), (1, 2), (0, 2))


@pytest.mark.parametrize(
    "text",
    [
        "7 8 9\n8 9\n9 7\n",
        "# users\n7\t8\t9\n\n8\t9\n9\t7\n",
        "% asym\n7 8\n7 9\n8 9\n9 7\n",
        "Source Target\n7 8\n7 9\n8 9\n9 7\n",
        "7,8\n7,9\n8,9\n9,7\n",
        "Source,Target\n7,8\n7,9\n8,9\n9,7\n",
        "id_1,id_2\n7,8\n7,9\n8,9\n9,7\n",
        '\ufeff"follower","followee"\n"7","8"\n7, 9\n8,9\n9,7\n',
        "# weighted\nsource,target,weight\n7,8,1\n7,9,0.5\n8,9,1\n9,7,2\n",
        "Weight,Target,Source\n1,8,7\n1,9,7\n1,9,8\n1,7,9\n",
    ],
)
def test_graphs_of_followers_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text(text, encoding="utf-8")
    samples = {sample_followers(path, 3, Random(seed)) for seed in range(20)}
    assert GRAPH in samples, "the sample that begins with 7"
    assert all(sum(map(len, sample)) == 3 + 4 for sample in samples), "three own topics and four relations"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("7\n8\n9\n", ": nobody among 3 users follows another one"),
        ("7 7\n8 8\n9\n", ": nobody among 3 users follows another one"),
        ("7;8\n8;9\n9;7\n", ":1: expected users separated by spaces, or all lines by commas, got '7;8'"),
        ("7 8\n8,9\n9 7\n", ":2: expected users separated by spaces, or all lines by commas, got '8,9'"),
        ("7,8\n8 9\n9,7\n", ":2: expected 2 columns with users, got '8 9'"),
        ("7,8,1\n8,9,1\n9,7,1\n", ":1: expected 2 columns with users, got '7,8,1'; more columns need a header"),
        ("source,target,weight\n7,8\n", ":2: expected 3 columns with users, got '7,8'"),
        ("7,\n", ":1: expected 2 columns with users"),
        ("7 8 0.5\n8 9 0.1\n9 7 2.0\n", ":1: weights and times are read only from a CSV file with a header"),
        ("7 8 7\n8 9 7\n9 7 7\n", ":1: weights and times are read only"),
        ("7 8 1 1217567877\n8 9 1 1217567880\n9 7 1 1217567899\n", ":1: weights and times are read only"),
        ("graph [\n node [ id 0 ]\n]\n", ": this is GML, expected lines of a follower and its followees"),
        ('[["7", "8"]]', ": this is JSON"),
        ("", ": expected a graph of at least 3 users, got 0"),
    ],
)
def test_other_graphs_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text(text)
    with pytest.raises(ExperimentError) as caught:
        sample_followers(path, 3, Random(1))
    assert str(caught.value).startswith(f"{path}{problem}")
