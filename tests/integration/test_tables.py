"""The analysis of a fabricated run: every value that the toy simulation knows, exactly."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from benchmarks._synthetic_run import write_run
from metrics import summary, tables
from metrics.headline import headline
from metrics.rundir import SCHEMA_VERSION, RunDir, Summary
from metrics.rundir.parquet import version_of
from metrics.tables import pipeline
from metrics.tables.schemas import TABLES
from tests.fabricate import SECOND, ZERO_NS, Fabrication

GOLDEN = Path(__file__).parents[1] / "golden" / "fabricated-summary.json"


class Analysed:
    """A fabricated run, analysed."""

    def __init__(self, fabrication: Fabrication, run_dir: Path) -> None:
        self.truth = fabrication.truth
        self.fabrication = fabrication
        self.run_dir = run_dir
        tables.build(run_dir)
        self.summary: Summary = summary.write(run_dir)

    def table(self, name: str) -> pd.DataFrame:
        return pq.read_table(self.run_dir / "tables" / f"{name}.parquet").to_pandas()

    def check(self, name: str) -> Any:
        return next(check for check in self.summary.checks if check.name == name)


def fabricate(**options: Any) -> Fabrication:
    return Fabrication(seed=3, nodes=8, topics=3, messages=60, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    fabrication = fabricate()
    return Analysed(fabrication, fabrication.write(tmp_path_factory.mktemp("fabricated") / "run"))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """No capture, node 2's trace cut in the middle of a line, node 5's trace gone, node 1 killed."""
    fabrication = fabricate()
    killed = {"process": "peer-1", "expected": "exited", "state": "signalled", "status": 9, "at_ns": ZERO_NS + SECOND}
    run_dir = fabrication.write(tmp_path_factory.mktemp("damaged") / "run", final_states=[killed])
    cut = run_dir / "trace" / "2.jsonl"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2 - 3])
    (run_dir / "trace" / "5.jsonl").unlink()
    (run_dir / "capture" / "plane.pcapng").unlink()
    return Analysed(fabrication, run_dir)


@pytest.fixture(scope="module")
def disagreeing(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """Node 0 forgot to trace one of its physical links, node 3 began to trace one a second before there was any.

    The two ends of the edge between nodes 6 and 7 traced no logical links.
    """
    fabrication = fabricate()
    first = next(e for e in fabrication.traces[0] if e.event == "add_peer")
    fabrication.traces[0] = [e for e in fabrication.traces[0] if (e.event, e.conn) != ("add_peer", first.conn)]
    early = next(e for e in fabrication.traces[3] if e.event == "add_peer")
    fabrication.traces[3][fabrication.traces[3].index(early)] = structs.replace(early, ts_ns=early.ts_ns - SECOND)
    for node, peer in ((6, 7), (7, 6)):
        fabrication.traces[node] = [e for e in fabrication.traces[node] if (e.event, e.peer) != ("graft", peer)]
    for node in (0, 6, 7):
        stop = fabrication.traces[node][-1]
        fabrication.traces[node][-1] = structs.replace(stop, records=len(fabrication.traces[node]) - 1)
    return Analysed(fabrication, fabrication.write(tmp_path_factory.mktemp("disagreeing") / "run"))


def test_tables_have_their_columns_and_open_in_pyarrow(run: Analysed) -> None:
    for name, columns in TABLES.items():
        files = list((run.run_dir / "tables" / f"{name}.parquet").glob("*.parquet"))
        assert files, name
        for path in files:
            assert pq.read_schema(path).names == list(columns)
            assert version_of(pq.read_metadata(path)) == SCHEMA_VERSION
            if pq.read_metadata(path).num_rows:
                assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"


def test_tables_hops_equal_the_simulation(run: Analysed) -> None:
    truth = pd.DataFrame(run.truth.hops).set_index(["conn", "direction", "off"]).sort_index()
    made = run.table("hops").set_index(["conn", "direction", "off"]).sort_index()
    assert len(made) == len(truth)
    columns = [
        "len_bytes",
        "kind",
        "src_node",
        "dst_node",
        "log_send_ns",
        "tap_tx_ns",
        "tap_rx_ns",
        "log_recv_ns",
        "n_retx",
    ]
    for column in columns:
        assert (made[column].astype("int64") == truth[column].astype("int64")).all(), column
    assert (
        made["d_sndbuf_ns"] + made["d_wire_ns"] + made["d_rcv_ns"] == made["log_recv_ns"] - made["log_send_ns"]
    ).all()
    ids = truth["message_id"].dropna()
    assert (made.loc[ids.index, "message_id"] == ids).all()
    assert truth["n_retx"].sum() > 0


def test_tables_mark_every_copy_but_the_first_as_duplicate(run: Analysed) -> None:
    hops = run.table("hops")
    copies = hops[hops["message_id"].notna()]
    firsts = copies[copies["is_dup"] == False].groupby(["message_id", "dst_node"]).size()  # noqa: E712
    assert (firsts == 1).all()
    assert {(int(m), int(n)) for m, n in firsts.index} == set(run.truth.delivered)
    assert int(copies["is_dup"].sum()) == len(copies) - len(run.truth.delivered)
    assert int(copies["is_dup"].sum()) > 0


def test_tables_deliveries_have_a_row_for_every_expected_pair(run: Analysed) -> None:
    deliveries = run.table("deliveries").set_index(["message_id", "node"])
    assert set(deliveries.index) == run.truth.expected()
    for key, row in deliveries.iterrows():
        delivered = run.truth.delivered.get(key)
        assert row["copies"] == run.truth.copies.get(key, 0)
        if delivered is None:
            assert pd.isna(row["delivered_ns"]) and pd.isna(row["latency_ms"])
            continue
        published = run.truth.published[key[0]]
        assert row["delivered_ns"] == delivered
        assert row["latency_ms"] == pytest.approx((delivered - published["publish_ns"]) / 1e6)
        assert 0 <= row["latency_ms"] - row["wire_latency_ms"] < 1
        direct = run.fabrication.delay_ns[published["publisher"], key[1]] / 1e6
        assert row["direct_delay_ms"] == direct
        assert row["stretch"] == pytest.approx(row["latency_ms"] / direct)


def test_tables_messages_have_quantiles_over_all_subscribers(run: Analysed) -> None:
    deliveries = run.table("deliveries")
    messages = run.table("messages").set_index("message_id")
    assert set(messages.index) == set(run.truth.published)
    for identifier, rows in deliveries.groupby("message_id"):
        row, latency = messages.loc[identifier], sorted(rows["latency_ms"].dropna())
        assert row["n_subscribers"] == len(rows)
        assert row["n_delivered"] == len(latency)
        for share in (50, 90, 99, 100):
            rank = -(-len(rows) * share // 100)
            expected = latency[rank - 1] if rank <= len(latency) else None
            assert row[f"t{share}_ms"] == pytest.approx(expected) if expected else pd.isna(row[f"t{share}_ms"])


def test_tables_overhead_adds_up_to_every_byte_sent(run: Analysed) -> None:
    overhead = run.table("overhead")
    classes = [name for name in TABLES["overhead"] if name.endswith("_bytes") and name != "wire_bytes"]
    assert (overhead[classes].sum(axis=1) == overhead["wire_bytes"]).all()
    assert (overhead[classes] >= 0).all().all()
    assert overhead["wire_bytes"].sum() == run.truth.wire_bytes
    assert overhead["retransmitted_bytes"].sum() == run.truth.retransmitted_bytes
    payload = run.fabrication.payload_bytes
    assert overhead["first_payload_bytes"].sum() == payload * len(run.truth.delivered)
    copies = sum(run.truth.copies.values())
    assert overhead["duplicate_payload_bytes"].sum() == payload * (copies - len(run.truth.delivered))
    assert overhead["other_bytes"].sum() == overhead["opaque_bytes"].sum() == 0
    control = sum(hop["len_bytes"] for hop in run.truth.hops if hop["message_id"] is None)
    assert overhead["control_bytes"].sum() == control == run.table("control")["frame_bytes"].sum()


def test_tables_links_and_sharing(run: Analysed) -> None:
    shared = {
        (node, peer, topic)
        for a, b in run.truth.edges
        for node, peer in ((a, b), (b, a))
        for topic in run.truth.subscriptions[a] & run.truth.subscriptions[b]
    }
    links = run.table("links")
    assert set(zip(links["node"], links["peer"], links["topic"], strict=True)) == shared
    physical = run.table("physical_links")
    assert {frozenset(pair) for pair in zip(physical["node"], physical["peer"], strict=True)} == set(
        map(frozenset, run.truth.edges)
    )
    sharing = run.table("sharing")
    at = sharing[(sharing["at_ns"] == ZERO_NS + SECOND) & (sharing["source"] == "trace")]
    assert at["view_size_total"].sum() == len(shared)
    assert at["view_size_unique"].sum() == len({(node, peer) for node, peer, _ in shared})
    assert at["degree"].sum() == 2 * len(run.truth.edges)
    wire = sharing[(sharing["at_ns"] == ZERO_NS + 5 * SECOND) & (sharing["source"] == "wire")]
    assert wire["degree"].sum() == 2 * len(run.truth.edges)
    assert 0 < wire["view_size_total"].sum() <= len(shared)
    conns = run.table("conns")
    assert len(conns) == len(run.truth.edges)
    assert conns["n_frames"].sum() == len(run.truth.hops)


def test_tables_logical_links_by_the_frames_are_those_of_the_traces(run: Analysed) -> None:
    seen, traced = run.table("wire_links"), run.table("links")
    key = ["node", "peer", "topic"]
    assert sorted(seen[key].itertuples(index=False)) == sorted(traced[key].itertuples(index=False)) != []
    assert set(seen["conn"]) <= set(run.table("conns")["conn"])
    sharing = run.table("sharing").set_index(["source", "at_ns", "node"])["view_size_total"].unstack("source")
    settled = sharing[sharing.index.get_level_values("at_ns") >= ZERO_NS - SECOND]
    assert (settled["trace"] == settled["frames"]).all()


def test_tables_links_on_the_wire_have_no_headline_number_if_those_of_one_node_are_unknown(
    run: Analysed, tmp_path: Path
) -> None:
    name = "logical_per_physical_link_on_wire"
    copied = RunDir(Path(shutil.copytree(run.run_dir, tmp_path / "run")))
    assert headline(copied)[name] is not None
    [part] = (copied.tables / "sharing.parquet").glob("*.parquet")
    rows = pq.read_table(part)
    sizes = rows["view_size_total"].to_pylist()
    named = zip(rows["source"].to_pylist(), rows["at_ns"].to_pylist(), strict=True)
    sizes[list(named).index(("frames", ZERO_NS))] = None
    place = rows.schema.get_field_index("view_size_total")
    pq.write_table(rows.set_column(place, rows.schema.field(place), pa.array(sizes, pa.int64())), part)
    assert headline(copied)[name] is None


def test_tables_links_of_wire_and_traces_agree_at_every_instant(run: Analysed) -> None:
    sharing = run.table("sharing").set_index(["source", "at_ns", "node"])["degree"].unstack("source")
    settled = sharing[sharing.index.get_level_values("at_ns") >= ZERO_NS - SECOND]
    assert (settled["trace"] == settled["wire"]).all()
    assert settled["wire"].sum() > 0
    found = run.check("link_agreement")
    assert (found.failed, found.severity) == (0, "suspect")
    instants = len(set(sharing.index.get_level_values("at_ns")))
    assert 2 * len(run.truth.edges) * (instants - 4) < found.tested <= 2 * len(run.truth.edges) * instants
    logical = run.table("sharing").set_index(["source", "at_ns", "node"])["view_size_total"].unstack("source")
    assert (logical["wire"] <= logical["trace"]).all()
    assert run.check("logical_links").failed == 0 < run.check("logical_links").tested


def test_tables_tell_links_that_traces_and_wire_do_not_share(disagreeing: Analysed) -> None:
    found = disagreeing.check("link_agreement")
    sharing = disagreeing.table("sharing").set_index(["source", "at_ns", "node"])["degree"].unstack("source")
    lost = sharing["wire"] - sharing["trace"]
    assert (lost.xs(0, level="node") == 1).sum() >= 5, "the forgotten link, at every second of its life"
    assert found.failed == int((lost > 0).sum() + (lost < 0).sum())
    assert "1 only in traces" in found.detail
    assert disagreeing.check("logical_links").failed > 0
    assert disagreeing.summary.verdict == "suspect"
    assert any(reason.startswith("Check link agreement failed") for reason in disagreeing.summary.reasons)


def test_tables_overlay_is_that_of_the_toy_network(run: Analysed) -> None:
    overlay = run.table("overlay").set_index("at_ns")
    assert list(overlay.index) == sorted(set(run.table("sharing")["at_ns"]))
    end = overlay.loc[ZERO_NS + int(run.fabrication.duration_s * SECOND)]
    edges, subscriptions = {frozenset(edge) for edge in run.truth.edges}, run.truth.subscriptions
    shared = {
        (a, b): subscriptions[a] & subscriptions[b] for edge in edges for a, b in (tuple(edge), tuple(edge)[::-1])
    }
    assert end["nodes"] == len(subscriptions)
    assert end["physical_links"] == len(edges)
    assert end["degree_mean"] == 2 * len(edges) / len(subscriptions)
    assert end["logical_links"] == sum(map(len, shared.values()))
    assert end["view_size_unique_mean"] == sum(map(bool, shared.values())) / len(subscriptions)
    topics = run.table("overlay_topics")
    assert set(topics["at_ns"]) == {ZERO_NS, end.name}
    for row in topics[topics["at_ns"] == end.name].itertuples():
        members = {node for node, held in subscriptions.items() if row.topic in held}
        assert row.subscribers == len(members)
        assert row.links == sum(edge <= members for edge in edges)
        assert row.components == row.view_components
        assert row.components == len(parts(members, [edge for edge in edges if edge <= members]))
    nodes = run.table("overlay_degrees")
    last = nodes[nodes["at_ns"] == end.name].set_index("node")
    assert last["degree"].to_dict() == {node: sum(node in edge for edge in edges) for node in subscriptions}
    assert (last["in_degree"] == last["view_size_unique"]).all()
    headline = run.summary.headline
    assert headline["topic_components"] == topics[topics["at_ns"] == end.name]["components"].sum()
    assert headline["topic_diameter_max"] == topics[topics["at_ns"] == end.name]["diameter"].max()


def parts(members: set[int], edges: list[frozenset[int]]) -> set[frozenset[int]]:
    """The members that reach each other, by merging along the edges."""
    part = {node: frozenset((node,)) for node in members}
    for edge in edges:
        merged = frozenset().union(*(part[node] for node in edge))
        part |= dict.fromkeys(merged, merged)
    return set(part.values())


def test_tables_fidelity_adds_up_all_lines_of_a_second(run: Analysed) -> None:
    fidelity = run.table("fidelity").set_index("at_ns")
    lines = [json.loads(line) for line in (run.run_dir / "dataplane.jsonl").read_text().splitlines()]
    for name in ("frames_in", "frames_out", "bytes_in", "bytes_out"):
        assert fidelity[name].sum() == lines[-1][name], name
    assert fidelity["dropped"].sum() == lines[-1]["drops"]["loss"] > 0
    assert sum(json.loads(drops)["loss"] for drops in fidelity["drops"].dropna()) == lines[-1]["drops"]["loss"]
    usual, merged = (fidelity.loc[ZERO_NS + second * SECOND] for second in (1, 2))
    lateness = [f"lateness_{name}_ns" for name in ("p50", "p90", "p99", "max")]
    assert list(usual[lateness]) == [20_000, 40_000, 90_000, 200_000]
    # 50 frames of 20 us, then 10 of 30 us, 40 of 40 us, 9 of 90 us and 1 of 200 us: the 55th, 99th and 109th of 110.
    assert list(merged[lateness]) == [30_000, 40_000, 90_000, 200_000]
    assert usual["busy_ratio"] == 0.1
    assert merged["busy_ratio"] == pytest.approx((1.0 * 0.1 + 0.25 * 0.5) / 1.25)


def test_tables_have_every_stall_and_its_phase(run: Analysed) -> None:
    stalls = run.table("stalls")
    assert stalls["source"].tolist() == ["plane", "host"]
    assert stalls["phase"].tolist() == ["workload", "workload"]
    assert (stalls["start_ns"] - ZERO_NS).tolist() == [0, SECOND]
    assert (stalls["end_ns"] - stalls["start_ns"]).tolist() == [9, 700_000]
    assert stalls["cpu"].isna().tolist() == [True, False]


def test_tables_fidelity_has_the_rest_of_each_second(run: Analysed) -> None:
    fidelity = run.table("fidelity").set_index("at_ns")
    hops = pd.DataFrame(run.truth.hops)
    for at_ns, row in fidelity.iterrows():
        sent = hops[hops["log_send_ns"] // SECOND == at_ns // SECOND]  # the workload's zero is a full second
        for column, begin, end in (
            ("send_ms_p99", "log_send_ns", "tap_tx_ns"),
            ("receive_ms_p99", "tap_rx_ns", "log_recv_ns"),
        ):
            if sent.empty:
                assert pd.isna(row[column])
            else:
                ordered = sorted((sent[end] - sent[begin]) / 1e6)
                assert row[column] == pytest.approx(ordered[-(-99 * len(ordered) // 100) - 1])
        assert row["cpu_busy_ratio"] == 0.3 or pd.isna(row["frames_in"])
    lag: dict[int, float] = {}
    for line in run.fabrication.schedule:
        scheduled_ns = ZERO_NS + line["at_ns"]
        late_ms = (run.truth.published[line["message_id"]]["publish_ns"] - scheduled_ns) / 1e6
        second = scheduled_ns // SECOND * SECOND
        lag[second] = max(lag.get(second, 0), late_ms)
    assert fidelity["publish_lag_ms_max"].dropna().to_dict() == pytest.approx(lag)
    probes = pq.read_table(run.run_dir / "achieved.parquet").to_pandas()
    probes["error"] = (probes["rtt_ms"] - probes["asked_rtt_ms"]).abs()
    for at_ns, rows in probes.groupby("at_ns"):
        assert fidelity.loc[at_ns, "probes"] == len(rows)
        assert fidelity.loc[at_ns, "probe_error_ms_p99"] == pytest.approx(rows["error"].quantile(0.99))


def test_tables_of_a_sound_run_give_a_valid_verdict(run: Analysed) -> None:
    assert run.summary.verdict == "valid", run.summary.reasons
    assert run.summary.reasons == ()
    for name in ("causal_order", "frame_sets", "stream_coverage", "conservation", "wire_delay", "overhead_identity"):
        assert run.check(name).tested > 0, name
    expected = run.truth.expected()
    assert run.summary.headline["delivery_ratio"] == len(run.truth.delivered) / len(expected)


def test_tables_golden_summary(run: Analysed) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert run.summary.headline == pytest.approx(golden["headline"], nan_ok=True)
    assert [check.name for check in run.summary.checks] == golden["checks"]


def test_tables_of_a_damaged_run_are_still_made(damaged: Analysed) -> None:
    assert damaged.summary.verdict == "invalid"
    said = "\n".join(damaged.summary.reasons)
    assert "peer-1 was killed by signal 9 at 1.0 s, expected exited." in damaged.summary.reasons
    assert "trace/2.jsonl was cut off" in said
    assert "trace/5.jsonl is missing or empty" in said
    assert "no capture file" in said
    assert len(damaged.table("deliveries")) > 0
    assert damaged.table("hops")["tap_tx_ns"].isna().all()
    assert damaged.table("fidelity").shape[0] > 0


def test_tables_of_the_benchmarks_run_are_made(tmp_path: Path) -> None:
    """What `trellis bench pipeline` times is an analysis that finds every frame at every place."""
    run_dir = tmp_path / "run"
    write_run(run_dir, 20_000)
    tables.build(run_dir)
    checks = {check.name: check for check in summary.write(run_dir).checks}
    for name in ("causal_order", "frame_sets", "stream_coverage", "wire_delay", "overhead_identity"):
        assert checks[name].tested > 0, name
        assert checks[name].failed == 0, checks[name]
    hops = pq.read_table(run_dir / "tables" / "hops.parquet").to_pandas()
    assert len(hops) == checks["frame_sets"].tested
    assert hops[["tap_tx_ns", "tap_rx_ns"]].notna().all(axis=None)


@pytest.mark.parametrize("command", [None, ["flood"]])
def test_of_many_packets_only_those_of_programs_bound_deliveries(
    command: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MOST_PACKETS", 10)
    monkeypatch.setattr(pipeline, "has_program", lambda _: command is not None)
    fabrication = fabricate()
    found = Analysed(fabrication, fabrication.write(tmp_path / "run"))
    least_ms, check = found.table("deliveries")["least_latency_ms"], found.check("possible_delays")
    if command is None:
        assert least_ms.isna().all()
        assert (check.outcome, "more than 10 packets" in check.detail) == ("not applicable", True)
    else:
        assert least_ms.notna().any() and check.outcome == "passed"


def test_captures_that_lack_packets_bound_no_delivery(tmp_path: Path) -> None:
    fabrication = fabricate()
    run_dir = fabrication.write(tmp_path / "run")
    manifest = json.loads((run_dir / "manifest.json").read_text())
    manifest["counters"]["records_dropped"] = 1
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    found = Analysed(fabrication, run_dir)
    assert found.check("capture_drops").outcome == "failed"
    for name in ("possible_delays", "delivered_bytes"):
        check = found.check(name)
        assert (check.outcome, "packets are missing in the captures" in check.detail) == ("not judged", True), name
