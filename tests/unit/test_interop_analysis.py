"""The figures of gossipsub-interop's analysis, as the tests compute them: an example, and what counts as apart."""

from pathlib import Path

from tests.interop_analysis import CUT_S, Figures, find_apart, read_analysis, read_lines, summarise

RECEIPTS = [(7, 2, 5_000), (7, 1, 1_000_000_000), (7, 2, 4_000), (7, 0, 3_000_000_000), (7, 1, 2_000_000_000)]
"""A message at three of four nodes, which came to node 2 twice, as to node 1."""


def line(at_us: int, msg: str, **values: object) -> str:
    quoted = ",".join(f'"{key}":"{value}"' for key, value in values.items())
    return f'{{"time":"1970-01-01T00:00:0{at_us // 1_000_000}.{at_us % 1_000_000:06d}Z","msg":"{msg}",{quoted}}}'


def test_the_figures_of_an_example() -> None:
    assert summarise(RECEIPTS, 4) == {7: Figures((3_000_000_000 - 4_000) / 1e9, (1_000_000_000 - 4_000) / 1e9, 0.5, 1)}
    assert summarise(RECEIPTS, 5)[7].reached == 0.75


def test_lines_and_their_analysis_have_the_same_figures(tmp_path: Path) -> None:
    for node in range(4):
        said = [line(at_ns // 1000, "Received Message", id=7) for _, other, at_ns in RECEIPTS if other == node]
        path = tmp_path / f"hosts/node{node}/peer.1000.stdout"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join([line(0, "PeerID", node_id=node), "no JSON", *said]) + "\n")
    (tmp_path / "analysis.txt").write_text("Message ID, ...\n7, 2.999996s, 0.999996s, 0.5, 1.0\n")
    theirs = read_analysis(tmp_path / "analysis.txt")
    assert find_apart(read_lines(tmp_path), theirs) == []
    assert find_apart(summarise(RECEIPTS, 4), theirs) == []


def test_messages_are_apart_if_one_figure_is() -> None:
    ours = Figures(3.0, 1.0, 0.5, 1.0)
    for theirs in (
        Figures(3.0 + 2 * CUT_S, 1.0, 0.5, 1.0),
        Figures(3.0, 1.0 - 2 * CUT_S, 0.5, 1.0),
        Figures(3.0, 1.0, 0.75, 1.0),
        Figures(3.0, 1.0, 0.5, 0.9),
    ):
        assert find_apart({1: ours, 2: ours}, {1: theirs, 2: ours}) == [1]
    assert find_apart({1: ours}, {1: ours, 2: ours}) == [2]
    assert find_apart({1: ours}, {1: Figures(3.0 + CUT_S / 2, 1.0, 0.5, 1.0)}) == []
