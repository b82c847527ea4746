"""Traces of other programs: those of real go-libp2p peers, earlier versions, mappings, bounds, and runs written out.

``tests/golden/pubsub-traces`` was written by five peers of go-libp2p-pubsub v0.15.0 on loopback: a ring, one topic,
four messages. Three used NewJSONTracer, two used NewPBTracer.
"""

import gzip
import io
import json
import os
import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness import cli
from metrics.rundir import RunDir
from metrics.trace_forms import FORMS, importing, netviz, numbering, protobuf, pubsub
from metrics.trace_forms.events import MOST_EVENT_BYTES, CutOffError, Event, TraceError
from metrics.trace_forms.exporting import export_run, message_name, peer_id
from metrics.trace_forms.importing import ImportSummary, import_traces
from metrics.trace_forms.ndjson import NEEDS, read_mapping
from metrics.trace_forms.tables import read_table
from peer.core.contract import message_id
from peer.core.frames import Data, Subscriptions
from peer.protocols.gossipsub.frames import Graft, Idontwant, Ihave
from tests.fabricate import OFFSET_NS, Fabrication

GOLDEN = Path(__file__).parents[1] / "golden" / "pubsub-traces"
SECOND = 1_000_000_000
T0 = 1_700_000_000 * SECOND


def read(source: Path, target: Path, form: str = "pubsub-trace", mapping: Path | None = None) -> ImportSummary:
    return import_traces(source, target, form, FORMS[form].load().open_form(mapping))


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_table(folder, table).to_pylist()
    return found


def write_json(path: Path, *events: Event | None) -> None:
    """Write events as go-libp2p-pubsub does."""
    made = [pubsub.make(event) for event in events if event is not None]
    path.write_bytes(b"".join(pubsub.to_json(event) for event in made if event is not None))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported") / "out"
    read(GOLDEN, folder)
    return folder


def golden_events() -> list[dict[str, Any]]:
    """All events by plain JSON; those in protobuf by our decoder, which another test compares with the bytes of Go."""
    events = []
    for path in sorted(GOLDEN.iterdir()):
        if path.suffix == ".json":
            events += [json.loads(line) for line in path.read_text().splitlines()]
        else:
            messages = protobuf.read_delimited(io.BytesIO(path.read_bytes()), MOST_EVENT_BYTES)
            events += [json.loads(pubsub.to_json(pubsub.from_protobuf(message))) for message in messages]
    return events


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_what_go_wrote_is_written_again_in_the_same_bytes(path: Path) -> None:
    written = path.read_bytes()
    if path.suffix == ".json":
        for line in written.splitlines():
            assert json.loads(pubsub.to_json(pubsub.from_json(line))) == json.loads(line)
    else:
        messages = protobuf.read_delimited(io.BytesIO(written), MOST_EVENT_BYTES)
        again = (protobuf.delimited(pubsub.to_protobuf(pubsub.from_protobuf(message))) for message in messages)
        assert b"".join(again) == written


def test_deliveries_of_go_peers_are_those_of_their_events(imported: Path) -> None:
    events = golden_events()
    published = {e["publishMessage"]["messageID"]: e for e in events if "publishMessage" in e}
    delays = sorted(
        (event["timestamp"] - published[identifier]["timestamp"]) / 1e6
        for event in events
        if "deliverMessage" in event
        and event["peerID"] != published[identifier := event["deliverMessage"]["messageID"]]["peerID"]
    )
    deliveries = rows(imported, "deliveries")
    assert sorted(row["latency_ms"] for row in deliveries) == pytest.approx(delays, abs=1e-9)
    assert len(delays) == 16
    assert all(row["known"] for row in deliveries)
    copies = Counter(e["peerID"] for e in events if "duplicateMessage" in e)
    assert sum(row["copies"] for row in deliveries) == 16 + copies.total() - len(
        [
            e
            for e in events
            if "duplicateMessage" in e and e["peerID"] == published[e["duplicateMessage"]["messageID"]]["peerID"]
        ]
    )


def test_transmissions_links_and_control_of_go_peers(imported: Path) -> None:
    events = golden_events()
    sent = Counter(
        message["messageID"] for e in events for message in e.get("sendRPC", {}).get("meta", {}).get("messages", ())
    )
    names = {
        row["message_id"]: row["name"] for row in pq.read_table(imported / "names" / "messages.parquet").to_pylist()
    }
    transmissions = {names[row["message_id"]]: row["n_transmissions"] for row in rows(imported, "messages")}
    assert sorted(transmissions.values()) == sorted(sent.values())
    grafts = [e for e in events if "graft" in e]
    assert len(rows(imported, "links")) == len(grafts) == 10
    assert len(rows(imported, "physical_links")) == len([e for e in events if "addPeer" in e])
    controls: defaultdict[int, int] = defaultdict(int)
    for row in rows(imported, "control"):
        controls[row["kind"]] += row["frames"]
        assert row["frame_bytes"] is None
    sends = [e["sendRPC"]["meta"] for e in events if "sendRPC" in e]
    assert controls[Graft.kind] == sum("graft" in meta.get("control", {}) for meta in sends)
    assert controls[Graft.kind] > 0


def test_what_traces_do_not_tell_is_null_and_named(imported: Path) -> None:
    for row in rows(imported, "deliveries"):
        assert [row[name] for name in ("hops", "stretch", "direct_delay_ms", "wire_latency_ms")] == [None] * 4
    for row in rows(imported, "messages"):
        assert (row["payload_bytes"], row["scheduled_ns"]) == (None, None)
    summary = json.loads((imported / "summary.json").read_text())
    assert {"verdict", "clocks", "payload bytes", "hops", "stretch"} <= summary["unknown"].keys()
    assert summary["numbers"]["duplicates_per_delivery"] == 0.5
    assert (summary["nodes"], summary["untraced"], summary["cut_off"], summary["remarks"]) == (5, 0, [], [])


def test_an_rpc_is_an_event_per_message_and_kind_of_control() -> None:
    line = (
        b'{"type":6,"peerID":"QQ==","timestamp":"7","recvRPC":{"receivedFrom":"Qg==","meta":{"messages":[{"messageID":'
        b'"bTE=","topic":"t"},{"messageID":"bTI=","topics":["t","u"]}],"subscription":[{"subscribe":true,"topic":"t"}],'
        b'"control":{"ihave":[{"topic":"t","messageIDs":["bTE="]},{"topic":"u"}],"idontwant":[{"messageIDs":["bTE="]}],'
        b'"graft":[]}}}}'
    )
    common = {"event": "receive", "ts_ns": 7, "node": b"A", "peer": b"B"}
    assert [*pubsub.tell(pubsub.from_json(line), "")] == [
        Event(**common, message=b"m1", topics=("t",), kind=Data.kind),
        Event(**common, message=b"m2", topics=("t", "u"), kind=Data.kind),
        Event(**common, kind=Subscriptions.kind),
        Event(**common, kind=Ihave.kind),
        Event(**common, kind=Idontwant.kind),
    ]


@pytest.mark.parametrize(
    ("line", "event", "peer"),
    [
        (b'{"addPeer":{"peerID":"Qg==","proto":"/meshsub/1.1.0"}', "add_peer", b"B"),
        (b'{"onNewOutboundStream":{"peerID":"Qg=="}', "add_peer", b"B"),
        (b'{"onClosedOutboundStream":{"peerID":"Qg=="}', "remove_peer", b"B"),
        (b'{"type":"DELIVER_MESSAGE","deliverMessage":{"messageID":"bQ=="}', "deliver", None),
        (b'{"deliverMessage":{"messageID":"bQ==","receivedFrom":"QQ=="}', "deliver", None),
        (b'{"duplicateMessage":{"messageID":"bQ==","receivedFrom":"Qg=="}', "duplicate", b"B"),
        (b'{"type":99,"unheardOf":{"peerID":"Qg=="}', None, None),
    ],
)
def test_all_versions_of_the_form_are_read(line: bytes, event: str | None, peer: bytes | None) -> None:
    told = [*pubsub.tell(pubsub.from_json(line + b',"peerID":"QQ==","timestamp":1}'), "")]
    assert [(each.event, each.peer) for each in told] == ([] if event is None else [(event, peer)])


@pytest.mark.parametrize("name", ["remove_peer", "prune", "leave"])
def test_reasons_that_the_form_does_not_have_are_left_out(name: str) -> None:
    made = pubsub.make(
        Event(name, 1, b"A", None if name == "leave" else b"B", topics=("t",) * (name != "remove_peer"), reason="stop")
    )
    assert made is not None
    assert b"stop" not in pubsub.to_json(made)
    assert pubsub.from_protobuf(pubsub.to_protobuf(made)) == made


def test_unknown_fields_and_kinds_of_numbers_are_skipped() -> None:
    event = pubsub.to_protobuf(pubsub.PubsubEvent(9, b"A", 5, join=pubsub.Content(topic="t")))
    newer = b"\xf9\x07" + bytes(8) + b"\xfd\x07" + bytes(4) + b"\xf8\x07\x05" + b"\xfa\x07\x01x"
    assert pubsub.from_protobuf(newer + event) == pubsub.from_protobuf(event)


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        (b"\x01\x03", "event 1", "expected a TraceEvent of go-libp2p-pubsub: field 0 has wire type 3"),
        (b'{"type":0}\n[]\n', ":2", "expected a TraceEvent of go-libp2p-pubsub: Expected `object`"),
        (b'{"join":{"topic":"t"},"timestamp":1}\n', ":1", "expected an event with peerID and timestamp"),
        (b'{"join":' + b'{"topic":' * 100_000 + b"\n", ":1", "expected a TraceEvent"),
        (b'{"a":"' + b"x" * MOST_EVENT_BYTES + b'"}\n', ":1", "expected at most 1,048,576 bytes per line"),
        (b"\xff\xff\xff\xff\x0f", "event 1", "expected a message of at most 1,048,576 bytes"),
        (b"\x1f\x8b\x09" + bytes(20), "trace", "expected gzip: Unknown compression method"),
        (b'{"join":{"topic":"t"},"peerID":"QQ==","timestamp":-1}\n', "trace", "expected a time from 0"),
        (
            b'{"join":{"topic":"%s"},"peerID":"QQ==","timestamp":1}\n' % (b"t" * 5000),
            "trace",
            "expected names of at most",
        ),
        (b"", "trace", "the traces have no events"),
    ],
)
def test_files_of_strangers_are_refused_in_one_line(
    content: bytes, place: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace").write_bytes(content)
    status = cli.main(["import", "pubsub-trace", str(tmp_path / "trace"), "--out", str(tmp_path / "out")])
    message = capsys.readouterr().err
    assert status == 2
    assert message.count("\n") == 1
    assert place in message
    assert problem in message
    assert not (tmp_path / "out").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"trace"}


@pytest.mark.parametrize("name", ["peer0.json", "peer1.pb", "peer1.pb.gz"])
def test_a_trace_that_is_cut_off_is_read_up_to_there(name: str, tmp_path: Path) -> None:
    whole = (GOLDEN / name.removesuffix(".gz")).read_bytes()
    content = gzip.compress(whole) if name.endswith(".gz") else whole
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / name).write_bytes(content[: len(content) * 2 // 3])
    summary = read(tmp_path / "traces", tmp_path / "out")
    assert summary.cut_off == (name,)
    assert any("files end inside an event" in remark for remark in summary.remarks)
    assert (
        0
        < sum(summary.events.values())
        < sum(read(GOLDEN / name.removesuffix(".gz"), tmp_path / "all").events.values())
    )


def test_every_prefix_of_a_protobuf_trace_is_whole_or_cut(tmp_path: Path) -> None:
    content = (GOLDEN / "peer1.pb").read_bytes()[:400]
    ends, file = {0}, io.BytesIO(content)
    with pytest.raises(CutOffError):
        for _ in protobuf.read_delimited(file, MOST_EVENT_BYTES):
            ends.add(file.tell())
    for length in range(1, len(content)):
        (tmp_path / "trace").write_bytes(content[:length])
        events = pubsub.read_events(tmp_path / "trace")
        if length in ends:
            assert list(events)
        else:
            with pytest.raises(CutOffError):
                list(events)


def test_a_folder_that_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(TraceError, match="there is something already"):
        read(GOLDEN, tmp_path / "out")


# ------------------------------------------------------------------------------------------- what is not known


def test_without_rpcs_nothing_is_said_of_transmissions_and_control(tmp_path: Path) -> None:
    write_json(
        tmp_path / "trace",
        Event("join", T0, b"A", topics=("t",)),
        Event("join", T0, b"B", topics=("t",)),
        Event("publish", T0 + 10, b"A", message=b"m", topics=("t",)),
        Event("deliver", T0 + 30, b"B", b"A", b"m", ("t",)),
        Event("duplicate", T0 + 40, b"B", b"C", b"m", ("t",)),
    )
    summary = read(tmp_path / "trace", tmp_path / "out")
    [message] = rows(tmp_path / "out", "messages")
    assert [message[name] for name in ("n_transmissions", "n_reached", "redundancy")] == [None] * 3
    assert (message["n_subscribers"], message["n_delivered"], message["t100_ms"]) == (1, 1, 20 / 1e6)
    assert [row["copies"] for row in rows(tmp_path / "out", "deliveries")] == [2]
    assert not (tmp_path / "out" / "tables" / "control.parquet").exists()
    assert "transmissions, redundancy and control frames" in summary.unknown
    assert summary.numbers["duplicates_per_delivery"] == 1
    assert "1 nodes are named but wrote no trace: what they received is not known" in summary.remarks


def test_a_message_without_a_publication_has_no_delay_and_may_have_no_publisher(tmp_path: Path) -> None:
    by_name = b"A" + (7).to_bytes(8)
    write_json(
        tmp_path / "trace",
        Event("join", T0, b"A", topics=("t",)),
        Event("join", T0, b"B", topics=("t",)),
        Event("deliver", T0 + 10, b"B", b"A", b"hash", ("t",)),
        Event("deliver", T0 + 20, b"B", b"A", by_name, ("t",)),
        Event("leave", T0 + 30, b"A", topics=("t",)),
    )
    summary = read(tmp_path / "trace", tmp_path / "out")
    messages = {row["publisher"]: row for row in rows(tmp_path / "out", "messages")}
    assert messages.keys() == {None, 0}
    assert messages[0]["message_id"] == message_id(0, 7)
    assert {row["publish_ns"] for row in messages.values()} == {None}
    found = {(row["publisher"], row["node"]): row for row in rows(tmp_path / "out", "deliveries")}
    assert found.keys() == {(None, 0), (None, 1), (0, 1)}
    assert {row["latency_ms"] for row in found.values()} == {None}
    assert found[None, 0]["delivered_ns"] is None
    assert "nothing says who published 1 messages" in summary.remarks
    assert summary.numbers["propagation_delay_ms_mean"] is None
    assert summary.numbers["delivery_ratio"] == pytest.approx(2 / 3)


def test_what_a_node_got_while_it_traced_nothing_is_not_known(tmp_path: Path) -> None:
    write_json(
        tmp_path / "trace",
        Event("join", T0, b"A", topics=("t",)),
        Event("join", T0, b"B", topics=("t",)),
        Event("publish", T0 + 10, b"A", message=b"1", topics=("t",)),
        Event("deliver", T0 + 20, b"B", b"A", b"1", ("t",)),
        Event("publish", T0 + 30, b"A", message=b"2", topics=("t",)),
        Event("publish", T0 + 40, b"A", message=b"3", topics=("t",)),
    )
    summary = read(tmp_path / "trace", tmp_path / "out")
    assert [row["known"] for row in rows(tmp_path / "out", "deliveries")] == [True, False, False]
    assert (summary.numbers["delivery_ratio"], summary.numbers["deliveries_unknown"]) == (1, 2)


def test_a_delivery_before_any_join_shows_a_subscription(tmp_path: Path) -> None:
    write_json(
        tmp_path / "trace",
        Event("publish", T0, b"A", message=b"1", topics=("t",)),
        Event("deliver", T0, b"A", None, b"1", ("t",)),
        Event("deliver", T0 + 20, b"B", b"A", b"1"),
        Event("join", T0 + 5, b"C", topics=("t",)),
        Event("deliver", T0 + 20, b"C", b"A", b"1"),
    )
    summary = read(tmp_path / "trace", tmp_path / "out")
    subscribed = [(row["node"], row["from_ns"] - T0) for row in rows(tmp_path / "out", "subscriptions")]
    assert subscribed == [(1, 0), (2, 5)]
    assert [row["node"] for row in rows(tmp_path / "out", "deliveries")] == [1]
    assert "1 subscriptions began before their trace: deliveries show them" in summary.remarks


def test_deliveries_before_their_publication_are_reported(tmp_path: Path) -> None:
    write_json(
        tmp_path / "trace",
        Event("join", T0, b"B", topics=("t",)),
        Event("deliver", T0 + 10, b"B", b"A", b"1", ("t",)),
        Event("publish", T0 + 30, b"A", message=b"1", topics=("t",)),
    )
    remarks = read(tmp_path / "trace", tmp_path / "out").remarks
    assert any(remark.startswith("1 deliveries are earlier than their publication") for remark in remarks)


# ------------------------------------------------------------------------------------------- mappings

INTEROP = """
time = "time"
event = "msg"

[events."Received Message"]
is = "copy"
message = "id"
topic = "topic"
peer = "from"

[events.Publishing]
is = "publish"
message = "data.id"
topic = "data.topic"
len_bytes = "data.bytes"

[events.PeerID]
is = "identity"
peer = "id"

[events.Joined]
is = "join"
topic = "topic"
"""

NODE_0 = """\
starting
{"time":"2023-11-14T22:13:20Z","msg":"PeerID","id":"12D3a"}
{"time":"2023-11-14T22:13:21.5+00:00","msg":"Publishing","data":{"id":7,"topic":"t","bytes":200}}
"""
NODE_1 = """\
{"time":"2023-11-14T22:13:20Z","msg":"Joined","topic":"t"}
{"time":"2023-11-14T23:13:21.500000123+01:00","msg":"Received Message","id":"7","topic":"t","from":"12D3a"}
{"time":"2023-11-14T22:13:22Z","msg":"Received Message","id":"7","topic":"t","from":"12D3b"}
{"time":"2023-11-14T22:13:22Z","msg":"something else"}
"""


def write_interop(folder: Path, mapping: str = INTEROP) -> Path:
    (folder / "traces").mkdir()
    (folder / "traces" / "node0.stdout").write_text(NODE_0)
    (folder / "traces" / "node1.stdout").write_text(NODE_1)
    (folder / "mapping.toml").write_text(mapping)
    return folder / "mapping.toml"


def test_lines_of_json_are_read_by_a_mapping(tmp_path: Path) -> None:
    summary = read(tmp_path / "traces", tmp_path / "out", "ndjson-trace", write_interop(tmp_path))
    [message] = rows(tmp_path / "out", "messages")
    assert (message["publisher"], message["payload_bytes"], message["publish_ns"]) == (0, 200, T0 + 1_500_000_000)
    [delivery] = rows(tmp_path / "out", "deliveries")
    assert (delivery["node"], delivery["copies"], delivery["delivered_ns"]) == (1, 2, T0 + 1_500_000_123)
    assert "payload bytes" not in summary.unknown
    assert {"logical links", "physical links"} <= summary.unknown.keys()
    nodes = pq.read_table(tmp_path / "out" / "names" / "nodes.parquet").to_pylist()
    assert [(row["name"], row["traced"]) for row in nodes] == [("node0", True), ("node1", True), ("12D3b", False)]
    assert not (tmp_path / "out" / "tables" / "links.parquet").exists()


def test_a_file_whose_name_is_no_text_is_a_node(tmp_path: Path) -> None:
    mapping = write_interop(tmp_path)
    (tmp_path / "traces/node0.stdout").rename(tmp_path / "traces" / os.fsdecode(b"node\xff.stdout"))
    read(tmp_path / "traces", tmp_path / "out", "ndjson-trace", mapping)
    nodes = pq.read_table(tmp_path / "out" / "names" / "nodes.parquet").to_pylist()
    assert b"node\xff".hex() in {row["name"] for row in nodes}


def test_a_mapping_without_duplicates_says_nothing_of_copies(tmp_path: Path) -> None:
    mapping = write_interop(tmp_path, INTEROP.replace('is = "copy"', 'is = "deliver"'))
    summary = read(tmp_path / "traces", tmp_path / "out", "ndjson-trace", mapping)
    assert [row["copies"] for row in rows(tmp_path / "out", "deliveries")] == [None]
    assert summary.numbers["duplicates_per_delivery"] is None
    assert "copies and duplicates" in summary.unknown


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (('is = "copy"', 'is = "magic"'), "is = 'magic': expected one of publish"),
        (('message = "id"\n', ""), "an event that is copy needs the key message"),
        (('peer = "from"', 'sender = "from"'), "unknown field `sender`"),
        (('time = "time"', 'time = "ts"'), "node0.stdout:2: the event 'PeerID': expected a time as in RFC 3339"),
        (('topic = "data.topic"', 'topic = "data.t.x"'), "node0.stdout:3: the event 'Publishing': it has no data.t.x"),
        (('topic = "data.topic"', 'topic = "data"'), "expected text or an integer in data"),
        (('event = "msg"', 'event = "msg"\ntime_unit = "ms"'), "expected a number of ms since the epoch"),
        (("[events.Joined]", "[events.Joined"), "mapping.toml"),
    ],
)
def test_a_wrong_mapping_is_refused(change: tuple[str, str], problem: str, tmp_path: Path) -> None:
    mapping = write_interop(tmp_path, INTEROP.replace(*change))
    with pytest.raises(TraceError) as refused:
        read(tmp_path / "traces", tmp_path / "out", "ndjson-trace", mapping)
    assert problem in str(refused.value)


def test_the_page_has_every_form_and_event_and_its_mapping_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "other-traces.md").read_text(encoding="utf-8")
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")
    ]
    forms = {name.strip("`"): (read, written) for name, read, written, _ in (row for row in cells if len(row) == 4)}
    yes = {True: "yes", False: ""}
    assert list(forms.items())[2:] == [(form.name, (yes[form.reads], yes[form.writes])) for form in FORMS.values()]
    events = [(re.findall("`([a-z_]+)`", row[0]), row[2]) for row in cells if len(row) == 3]
    assert {name: keys for names, keys in events for name in names if name != "is"} == {
        name: ", ".join(keys) for name, keys in NEEDS.items()
    }
    (tmp_path / "mapping.toml").write_text(page.split("```toml\n")[1].partition("```")[0])
    assert read_mapping(tmp_path / "mapping.toml").told >= {"deliver", "duplicate"}


def test_traces_with_too_many_events_or_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "WAITING_BYTES", 1000)
    monkeypatch.setattr(importing, "MOST_BYTES", 5000)
    with pytest.raises(TraceError, match="GiB of events"):
        read(GOLDEN, tmp_path / "out")
    monkeypatch.setattr(numbering, "MOST_MESSAGES", 3)
    with pytest.raises(TraceError, match="the traces name more than 3 messages"):
        read(GOLDEN, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def fabricated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fabrication, RunDir]:
    fabrication = Fabrication(seed=3, nodes=8, topics=3, messages=30)
    return fabrication, RunDir(fabrication.write(tmp_path_factory.mktemp("fabricated") / "run"))


@pytest.mark.parametrize("form", ["pubsub-json", "pubsub-protobuf"])
def test_a_run_that_is_exported_and_imported_has_its_deliveries(
    form: str, fabricated: tuple[Fabrication, RunDir], tmp_path: Path
) -> None:
    fabrication, run = fabricated
    left_out = export_run(run, tmp_path / "exported", FORMS[form])
    assert any(line.endswith("stop events") for line in left_out)
    read(tmp_path / "exported", tmp_path / "out")
    found = {(row["message_id"], row["node"]): row for row in rows(tmp_path / "out", "deliveries")}
    truth = fabrication.truth
    assert found.keys() == truth.expected()
    assert len(truth.delivered) > len(found) / 2
    for pair, row in found.items():
        assert row["delivered_ns"] == (truth.delivered[pair] + OFFSET_NS if pair in truth.delivered else None)
        assert row["copies"] == truth.copies.get(pair, 0)
        assert row["publish_ns"] == truth.published[pair[0]]["publish_ns"] + OFFSET_NS
    subscribed = {(row["node"], row["topic"]) for row in rows(tmp_path / "out", "subscriptions")}
    assert subscribed == {(node, topic) for node, topics in truth.subscriptions.items() for topic in topics}
    grafts = sum(len(e.topics or ()) for trace in fabrication.traces.values() for e in trace if e.event == "graft")
    assert len(rows(tmp_path / "out", "links")) == grafts
    adds = sum(e.event == "add_peer" for trace in fabrication.traces.values() for e in trace)
    assert len(rows(tmp_path / "out", "physical_links")) == adds


def test_tracestat_reads_an_export_as_gzipped_delimited_events(
    fabricated: tuple[Fabrication, RunDir], tmp_path: Path
) -> None:
    export_run(fabricated[1], tmp_path / "exported", FORMS["pubsub-protobuf"])
    with gzip.open(tmp_path / "exported" / "0.pb.gz") as file:
        first = pubsub.from_protobuf(next(protobuf.read_delimited(file, MOST_EVENT_BYTES)))
    assert (first.type, first.peer_id) == (9, peer_id(0))
    assert first.join is not None


def test_names_of_a_run_are_those_of_libp2p() -> None:
    assert len(peer_id(3)) == 38
    assert peer_id(3)[:6] == bytes([0x00, 36, 0x08, 1, 0x12, 32])  # identity, then key type ed25519 and 32 bytes
    assert message_name(message_id(3, 5)) == peer_id(3) + (5).to_bytes(8)


def test_an_animation_has_header_sorted_events_and_index(
    fabricated: tuple[Fabrication, RunDir], tmp_path: Path
) -> None:
    fabrication, run = fabricated
    export_run(run, tmp_path / "exported", FORMS["netviz"])
    content = (tmp_path / "exported" / netviz.FILE).read_bytes()
    header, *events, footer = map(json.loads, content.splitlines())
    assert (header["v"], header["decoderName"], header["nodes"][:2]) == (1, "gossipsub", ["n0", "n1"])
    edges = {(edge["source"], edge["target"]): edge["latency_ms"] for edge in header["topology"]["edges"]}
    assert edges.keys() == {(min(edge), max(edge)) for edge in fabrication.truth.edges}
    assert all(edges[one, other] == fabrication.delay_ns[one, other] / 1e6 for one, other in edges)
    assert events == sorted(events, key=lambda event: event[:2])
    assert events[0][0] == 0
    codes = Counter(event[2] for event in events)
    lines = [e for trace in fabrication.traces.values() for e in trace]
    assert codes["pb"] == sum(e.event == "publish" for e in lines)
    assert codes["dl"] == sum(e.event == "deliver" and e.peer is not None for e in lines)
    assert codes["ms"] == sum(e.event == "send" and e.kind == Data.kind for e in lines)
    assert codes["tj"] == sum(len(topics) for topics in fabrication.truth.subscriptions.values())
    assert (footer["end"], footer["duration"]) == (True, events[-1][0])
    for at_us, offset in footer["index"]:
        assert json.loads(content[offset:].splitlines()[0])[0] == at_us
    assert all(later[0] - earlier[0] >= 100_000 for earlier, later in pairwise(footer["index"]))


def test_a_run_with_too_many_events_is_no_animation(
    fabricated: tuple[Fabrication, RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netviz, "MOST_EVENTS", 10)
    with pytest.raises(TraceError, match="more than 10 events"):
        export_run(fabricated[1], tmp_path / "exported", FORMS["netviz"])
    assert not (tmp_path / "exported").exists()


def test_the_command_exports_and_says_what_is_left_out(
    fabricated: tuple[Fabrication, RunDir], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(fabricated[1].path), str(tmp_path / "exported")
    assert cli.main(["export", "pubsub-json", run, "--out", out]) == 0
    assert "left out: 8 stop events" in capsys.readouterr().out
    assert cli.main(["export", "pubsub-json", run, "--out", out]) == 2
    assert "there is something already" in capsys.readouterr().err
    assert cli.main(["import", "pubsub-trace", out, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "duplicates_per_delivery: " in printed
    assert "not known: verdict" in printed
