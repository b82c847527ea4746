"""An emulated run whose peers are programs of gossipsub-interop, from params.json to the folder that its scripts read.

The programs flood over TCP and print the lines of five dialects (``tests/interop_peer.py``).
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.experiment.implementations import find_implementation
from tests.e2e.run_experiment import QUICKLY, ROOT, Finished, finish, speaks_of_load, start
from tests.examples import long_unless
from tests.interop_analysis import MILLISECOND_S, find_apart, read_lines, read_tables

pytestmark = [pytest.mark.root, pytest.mark.slow]

DIALECTS = ("go", "rust", "nim", "jvm", "js")
NODES = len(DIALECTS)
IMPLEMENTATION = """
version = "1"
about = "It floods, and prints what such programs print."
command = ["{{python}}", "{program}", "{dialect}"]
contract = "gossipsub-interop"
memory_mib = 40
start_cpu_s = 0.5
"""
EXPERIMENT = """
name = "interop"
protocol = "gossipsub"

[underlay]
kind = "uniform"
hosts = 5
delay_ms = 20

[prometheus]
enabled = false

[peer]
connect_at_s = 5
"""
PUBLISHERS = {90: 2, 7: 0, 8: 4, 9: 1}
"""The node that publishes each message, in the order of time."""


def for_node(node: int, instruction: dict[str, Any]) -> dict[str, Any]:
    return {"type": "ifNodeIDEquals", "nodeID": node, "instruction": instruction}


def make_script() -> list[dict[str, Any]]:
    script: list[dict[str, Any]] = [
        for_node(node, {"type": "initGossipSub", "gossipSubParams": {"HeartbeatInitialDelay": 100_000_000 + node}})
        for node in range(NODES)
    ]
    script.append({"type": "setTopicValidationDelay", "topicID": "a-subnet", "delaySeconds": 0.005})
    for node in range(NODES):
        others = sorted({(node + 1) % NODES, (node + 2) % NODES} - {0 if node == 3 else None})
        script.append(for_node(node, {"type": "connect", "connectTo": others}))
    script.append({"type": "subscribeToTopic", "topicID": "a-subnet", "partial": False})
    for elapsed_s, (number, node) in enumerate(PUBLISHERS.items(), 12):
        script.append({"type": "waitUntil", "elapsedSeconds": elapsed_s})
        publish = {"type": "publish", "messageID": number, "messageSizeBytes": 2048, "topicID": "a-subnet"}
        script.append(for_node(node, publish))
    return [*script, {"type": "waitUntil", "elapsedSeconds": 18}]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("interop")
    (folder / "params.json").write_text(json.dumps({"script": make_script()}))
    program = ROOT / "tests/interop_peer.py"
    mix = []
    for node, dialect in enumerate(DIALECTS):
        text = IMPLEMENTATION.format(program=program, dialect=dialect)
        (folder / f"{dialect}.toml").write_text(text)
        mix.append(f'[[peer.mix]]\nimplementation = "{folder}/{dialect}.toml"\nnodes = [{node}]\n')
    experiment = folder / "interop.toml"
    experiment.write_text(EXPERIMENT + 'script = "params.json"\n' + "".join(mix))
    out = folder / "run"
    return Finished(out, finish(start("run", experiment, *QUICKLY, "--out", out, "--json")))


def test_every_message_reaches_every_node(done: Finished) -> None:
    assert [reason for reason in done.summary["reasons"] if not speaks_of_load(reason)] == []
    assert {(state["state"], state["status"]) for state in done.manifest["final_states"]} == {("exited", 0)}
    headline = done.summary["headline"]
    assert (headline["messages_published"], headline["delivery_ratio"]) == (len(PUBLISHERS), 1)
    assert headline["deliveries_expected"] == len(PUBLISHERS) * (NODES - 1)
    assert 20 <= headline["least_delay_ms_p50"] <= headline["propagation_delay_ms_p50"]
    assert headline["duplicates_per_delivery"] > 0
    assert headline["degree_mean"] is None
    counters = done.manifest["counters"]
    assert 0 < counters["introduced_ns_min"] <= counters["introduced_ns_max"]
    assert [row["implementation"] for row in done.table("nodes")] == list(DIALECTS)


def test_copies_have_the_senders_that_programs_print(done: Finished) -> None:
    nodes = {copy["dst_node"] for copy in done.table("copies")}
    named = {(DIALECTS[copy["dst_node"]], copy["is_dup"], copy["src_node"] in nodes) for copy in done.table("copies")}
    assert {each for each in named if each[0] != "rust"} <= {
        *((dialect, is_dup, True) for dialect in ("go", "jvm", "js") for is_dup in (False, True)),
        *(("nim", is_dup, False) for is_dup in (False, True)),
    }
    assert {each for each in named if each[0] == "rust"} == {("rust", False, True), ("rust", True, False)}
    assert not any(copy["is_relay"] or copy["at_relay"] for copy in done.table("copies"))


def test_programs_wait_before_they_connect_and_their_lines_are_kept(done: Finished) -> None:
    script = json.loads((done.run_dir / "params.json").read_text())["script"]
    assert [each for each in script if each not in make_script()] == [{"type": "waitUntil", "elapsedSeconds": 5}]
    for node, dialect in enumerate(DIALECTS):
        lines = (done.run_dir / f"output/{node}.ndjson").read_text().splitlines()
        said = [json.loads(line) for line in lines]
        assert (said[0]["msg"], str(said[0]["node_id"])) == ("PeerID", str(node))
        copies = [line for line in said if line["msg"] == "Received Message"]
        assert any("from" in line for line in copies) == (dialect != "nim")
        log = (done.run_dir / f"logs/{node}.log").read_text().splitlines()
        published = [line for line in log if line.startswith("Publishing")]
        assert published == [f"Publishing message {number}" for number, origin in PUBLISHERS.items() if origin == node]


def test_the_folder_for_its_scripts_agrees_with_the_tables(done: Finished, tmp_path: Path) -> None:
    """The scripts of gossipsub-interop count the same lines: nodes that received a message, and later copies."""
    out = tmp_path / "shadow.data"
    assert cli.main(["export", "gossipsub-interop", str(done.run_dir), "--out", str(out)]) == 0
    figures = read_tables(done.run_dir)
    assert figures.keys() == PUBLISHERS.keys()
    assert find_apart(figures, read_lines(out), MILLISECOND_S) == []
    received: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for path in sorted((out / "hosts").rglob("*.stdout")):
        for said in map(json.loads, path.read_text().splitlines()):
            if said["msg"] == "Received Message":
                received[int(said["id"])][path.parent.name] += 1
    order = {number: place for place, number in enumerate(PUBLISHERS)}
    rows = {(row["message_id"] & 0xFFFF, row["node"]): row for row in done.table("deliveries")}
    assert len(rows) == len(PUBLISHERS) * (NODES - 1)
    for number, publisher in PUBLISHERS.items():
        receivers = {name for name in received[number] if name != f"node{publisher}"}
        assert len(receivers) == NODES - 1
        for node in range(NODES):
            if node != publisher:
                row = rows[order[number], node]
                assert row["copies"] == received[number][f"node{node}"]
                assert row["delivered_ns"] is not None
    for name in ("shadow.yaml", "graph.gml", "params.json"):
        assert (out / name).stat().st_size > 0


GENERATED = """
name = "generated"
protocol = "gossipsub"

[underlay]
kind = "measured-cities"
hosts = 6

[workload]
topics = 3
publish_rate_per_s = 3
warmup_s = 12
duration_s = 4
cooldown_s = 3

[interests]
ratio = 0.7

[peer]
events = "gossipsub-interop"
connect = 3
connect_at_s = 5
"""


@pytest.mark.long
def test_programs_follow_the_script_of_a_schedule(tmp_path: Path) -> None:
    """Nodes that do not subscribe to a topic forward it here, since the programs flood: their copies are relays."""
    experiment = tmp_path / "generated.toml"
    command = [sys.executable, str(ROOT / "tests/interop_peer.py"), "go"]
    experiment.write_text(f"{GENERATED}command = {json.dumps(command)}\n")
    out = tmp_path / "run"
    made = Finished(out, finish(start("run", experiment, *QUICKLY, "--out", out, "--json")))
    assert [reason for reason in made.summary["reasons"] if not speaks_of_load(reason)] == []
    headline = made.summary["headline"]
    assert headline["delivery_ratio"] == 1
    published = [line for line in made.lines("schedule.jsonl") if line["action"] == "publish"]
    assert headline["messages_published"] == len(published) > 3
    assert {line["at_ns"] % 1_000_000_000 for line in published} == {0}
    relays = [line for node in range(6) for line in made.lines(f"trace/{node}.jsonl") if line["event"] == "relay"]
    copies = made.table("copies")
    assert {(copy["dst_node"], copy["message_id"]) for copy in copies if copy["is_relay"]} == {
        (line["node"], line["message_id"]) for line in relays
    }
    assert all(copy["at_relay"] and not copy["is_dup"] for copy in copies if copy["is_relay"])


LIBRARIES = ("js-libp2p", "py-libp2p")
"""`.ci/run` fetches them."""

IN_BOTH_LANGUAGES = """
name = "libraries"
protocol = "gossipsub"

[underlay]
kind = "uniform"
hosts = {nodes}
delay_ms = 20

[prometheus]
enabled = false

[peer]
events = "gossipsub-interop"
script = "params.json"
connect_at_s = 20

[[peer.mix]]
implementation = "js-libp2p"
nodes = {even}

[[peer.mix]]
implementation = "py-libp2p"
nodes = {odd}
"""
FIRST_S = 28
"""When the first message is published. Programs may take long to start and to connect on a busy machine."""


def make_blob_script(nodes: int) -> list[dict[str, Any]]:
    """The instructions of gossipsub-interop's scenario subnet-blob-msg, with fewer, smaller and sooner messages."""
    script: list[dict[str, Any]] = []
    for node in range(nodes):
        parameters = {"HeartbeatInitialDelay": 100_000_000 + 100_000 * (node + 1)}
        script.append(for_node(node, {"type": "initGossipSub", "gossipSubParams": parameters}))
    script.append({"type": "setTopicValidationDelay", "topicID": "a-subnet", "delaySeconds": 0.005})
    for node in range(nodes - 1):
        script.append(for_node(node, {"type": "connect", "connectTo": list(range(node + 1, nodes))}))
    script.append({"type": "subscribeToTopic", "topicID": "a-subnet", "partial": False})
    for number in range(nodes):
        script.append({"type": "waitUntil", "elapsedSeconds": FIRST_S + number})
        publish = {"type": "publish", "messageID": number, "messageSizeBytes": 16_384, "topicID": "a-subnet"}
        script.append(for_node((5 * number + 1) % nodes, publish))
    return [*script, {"type": "waitUntil", "elapsedSeconds": FIRST_S + nodes + 4}]


@pytest.mark.parametrize("nodes", long_unless({3}, [3, 6]))
def test_the_libraries_in_javascript_and_python_follow_a_script(nodes: int, tmp_path: Path) -> None:
    """Each node publishes one message, also to the other library. Both are in the user's cache, which peers see."""
    if missing := [name for name in LIBRARIES if not find_implementation(name, "$").is_there]:
        pytest.skip(f"the libraries are not here: trellis fetch {' '.join(missing)}")
    (tmp_path / "params.json").write_text(json.dumps({"script": make_blob_script(nodes)}))
    experiment = tmp_path / "libraries.toml"
    even, odd = (list(range(first, nodes, 2)) for first in (0, 1))
    experiment.write_text(IN_BOTH_LANGUAGES.format(nodes=nodes, even=even, odd=odd))
    out = tmp_path / "run"
    made = Finished(out, finish(start("run", experiment, *QUICKLY, "--out", out, "--json")))
    assert [reason for reason in made.summary["reasons"] if not speaks_of_load(reason)] == []
    headline = made.summary["headline"]
    assert (headline["messages_published"], headline["deliveries_expected"]) == (nodes, nodes * (nodes - 1))
    assert headline["delivery_ratio"] == 1
    assert headline["duplicates_per_delivery"] > 0
    folder = tmp_path / "shadow.data"
    assert cli.main(["export", "gossipsub-interop", str(out), "--out", str(folder)]) == 0
    figures = read_tables(out)
    assert figures.keys() == set(range(nodes))
    assert find_apart(figures, read_lines(folder), MILLISECOND_S) == []
