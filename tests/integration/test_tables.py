"""The analysis of a fabricated run: every value that the toy simulation knows, exactly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from fabricate import SECOND, ZERO_NS, Fabrication

from metrics import summary, tables
from metrics.rundata import Summary
from metrics.tables.schemas import TABLES

pytestmark = pytest.mark.spark

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


def test_tables_have_their_columns_and_open_in_pyarrow(run: Analysed) -> None:
    for name, columns in TABLES.items():
        files = list((run.run_dir / "tables" / f"{name}.parquet").glob("*.parquet"))
        assert files, name
        for path in files:
            assert pq.read_schema(path).names == list(columns)
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
    assert overhead["other_bytes"].sum() == 0
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
    assert at["view_size_unique"].sum() == 2 * len(run.truth.edges)
    wire = sharing[(sharing["at_ns"] == ZERO_NS + 5 * SECOND) & (sharing["source"] == "wire")]
    assert wire["view_size_unique"].sum() == 2 * len(run.truth.edges)
    assert 0 < wire["view_size_total"].sum() <= len(shared)
    conns = run.table("conns")
    assert len(conns) == len(run.truth.edges)
    assert conns["n_frames"].sum() == len(run.truth.hops)


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
