"""A run as the folder of gossipsub-interop: what its scripts would count, and where its nodes are."""

import json
import os
import re
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from metrics.rundir import RunDir
from metrics.trace_forms import FORMS
from metrics.trace_forms.events import TraceError
from metrics.trace_forms.exporting import export_run
from metrics.trace_forms.importing import import_traces
from metrics.trace_forms.tables import read_table
from tests.fabricate import OFFSET_NS, Fabrication

FORM = FORMS["gossipsub-interop"]


@pytest.fixture(scope="module")
def fabricated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fabrication, RunDir]:
    fabrication = Fabrication(seed=5, nodes=8, topics=3, messages=30)
    return fabrication, RunDir(fabrication.write(tmp_path_factory.mktemp("fabricated") / "run"))


def read_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of each node."""
    files = sorted((folder / "hosts").rglob("*.stdout"))
    return {path.parent.name: [json.loads(line) for line in path.read_text().splitlines()] for path in files}


def test_traces_become_the_lines_of_a_program(fabricated: tuple[Fabrication, RunDir], tmp_path: Path) -> None:
    fabrication, run = fabricated
    remarks = export_run(run, tmp_path / "out", FORM)
    assert "made of traces: what 8 nodes print, since their peers print no such lines" in remarks
    found = read(tmp_path / "out")
    assert set(found) == {f"node{node}" for node in range(8)}
    truth, ids = fabrication.truth, {}
    copies: defaultdict[tuple[int, int], int] = defaultdict(int)
    for name, lines in found.items():
        node = int(name.removeprefix("node"))
        assert [line["node_id"] for line in lines if line["msg"] == "PeerID"] == [node]
        ids[lines[0]["id"]] = node
        for line in lines[1:]:
            assert line["msg"] == "Received Message"
            pair = int(line["id"]), node
            copies[pair] += 1
            if copies[pair] == 1 and pair in truth.delivered:
                at_us = datetime.fromisoformat(line["time"]).timestamp() * 1e6
                assert at_us == pytest.approx((truth.delivered[pair] + OFFSET_NS) / 1e3, abs=2)
    events = [event for trace in fabrication.traces.values() for event in trace]
    heard = [event for event in events if event.event in ("deliver", "duplicate", "relay")]
    heard = [event for event in heard if event.peer is not None or event.message_id >> 32 != event.node]
    assert copies == Counter((event.message_id, event.node) for event in heard)
    assert len(ids) == 8
    senders = {line["from"] for lines in found.values() for line in lines if "from" in line}
    assert senders <= set(ids) and senders


def test_what_programs_printed_is_copied(fabricated: tuple[Fabrication, RunDir], tmp_path: Path) -> None:
    _, run = fabricated
    (run.path / "output").mkdir()
    content = b'{"msg":"PeerID","node_id":"3"}\nno JSON\n'
    (run.path / "output/3.ndjson").write_bytes(content)
    (run.path / "params.json").write_bytes(b'{"script":[]}\n')
    try:
        remarks = export_run(run, tmp_path / "out", FORM)
    finally:
        (run.path / "output/3.ndjson").unlink()
        (run.path / "output").rmdir()
        (run.path / "params.json").unlink()
    assert (tmp_path / "out/hosts/node3/peer.1000.stdout").read_bytes() == content
    assert (tmp_path / "out/params.json").read_bytes() == b'{"script":[]}\n'
    assert any(remark.startswith("made of traces: what 7 nodes print") for remark in remarks)


def test_its_scripts_find_the_place_of_every_node(fabricated: tuple[Fabrication, RunDir], tmp_path: Path) -> None:
    _, run = fabricated
    export_run(run, tmp_path / "out", FORM)
    text = (tmp_path / "out/shadow.yaml").read_text()
    places = dict(re.findall(r"  (node\d+):\n    network_node_id: (\d+)\n", text))
    assert {name: int(host) for name, host in places.items()} == {
        f"node{place.node}": place.host for place in run.plan.placement
    }
    graph = (tmp_path / "out/graph.gml").read_text()
    labels = dict(re.findall(r'node \[\n    id (\d+)\n    label "([^"\]]+)"', graph))
    assert sorted(map(int, labels)) == sorted({place.host for place in run.plan.placement})
    edges = {
        (int(one), int(other)): int(latency_ns)
        for one, other, latency_ns in re.findall(r'source (\d+)\n    target (\d+)\n    latency "(\d+) ns"', graph)
    }
    assert len(edges) == 8 * 7
    asked = {pair: round(run.network.asked(*pair).delay_ms * 1e6) for pair in edges}
    assert edges == asked


def test_a_folder_that_was_written_is_read_again(fabricated: tuple[Fabrication, RunDir], tmp_path: Path) -> None:
    fabrication, run = fabricated
    export_run(run, tmp_path / "out", FORM)
    summary = import_traces(tmp_path / "out", tmp_path / "in", FORM.name, FORM.load().open_form(None))
    assert (summary.nodes, summary.untraced, summary.files) == (8, 0, 8)
    names = {row["message_id"]: int(row["name"]) for row in read_rows(tmp_path / "in/names/messages.parquet")}
    nodes = {row["node"]: row["name"] for row in read_rows(tmp_path / "in/names/nodes.parquet")}
    assert nodes == {node: f"node{node}" for node in range(8)}
    truth = fabrication.truth
    deliveries = read_table(tmp_path / "in", "deliveries").to_pylist()
    found = {(names[row["message_id"]], row["node"]): row for row in deliveries}
    delivered = {pair: ns for pair, ns in truth.delivered.items() if pair[0] >> 32 != pair[1]}
    assert delivered and {pair for pair in found if pair[0] >> 32 != pair[1]} >= delivered.keys()
    for pair, at_ns in delivered.items():
        assert found[pair]["delivered_ns"] == at_ns + OFFSET_NS
        assert found[pair]["copies"] == truth.copies[pair]


def test_a_folder_whose_name_is_no_text_is_a_node(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path / "in/hosts") + b"/node\xff"))
    folder.mkdir(parents=True)
    (folder / "peer.1000.stdout").write_text(
        '{"msg":"Received Message","id":"7","time":"2026-01-01T00:00:00Z","topic":"a"}\n'
    )
    summary = import_traces(tmp_path / "in", tmp_path / "out", FORM.name, FORM.load().open_form(None))
    assert (summary.nodes, summary.files) == (1, 1)
    [row] = read_rows(tmp_path / "out/names/nodes.parquet")
    assert row["name"] == b"node\xff".hex()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, r"expected the output of programs, hosts/<node>/\*\.stdout"),
        ({"hosts/node0/x.1.stdout": '{"msg":"Received Message","id":"?"}\n'}, r"stdout:1: .*a number in 'id'"),
    ],
)
def test_what_is_no_output_is_refused(files: dict[str, str], problem: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, text in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        (tmp_path / "in" / name).write_text(text)
    with pytest.raises(TraceError, match=problem):
        import_traces(tmp_path / "in", tmp_path / "out", FORM.name, FORM.load().open_form(None))
    assert not (tmp_path / "out").exists()
