"""A recorded run's numbers by two programs that share no code: Trellis, and tshark with pandas.

The run is in ``tests/golden/recorded-run.tar.xz``: eight real peers with StAN on an emulated network that loses 1 % of
the packets, recorded once. tests/golden/README.md says how.
"""

import ast
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from metrics.analysis import analyse
from tests import independent_numbers
from tests.recorded_run import extract_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_run(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def ours(run: Path) -> dict[str, Any]:
    """What Trellis computes, under the names of the independent computation."""
    found = dict(analyse(run, "here", page=False).headline)
    overhead, conns, hops, deliveries = (
        pq.read_table(run / "tables" / f"{name}.parquet").to_pandas()
        for name in ("overhead", "conns", "hops", "deliveries")
    )
    found |= {name: int(overhead[name].sum()) for name in overhead.columns if name.endswith("bytes")}
    found["connections"] = sorted(conns["conn"])
    sides = [(row, side) for row in conns.to_dict("records") for side in ("orig", "resp")]
    names = {"pkts": "packets", "ip_bytes": "ip_bytes", "bytes": "stream_bytes", "retx_bytes": "resent"}
    for column, name in names.items():
        found[f"{name}_by_side"] = {(row["conn"], side): int(row[f"{side}_{column}"]) for row, side in sides}
    found |= {"hops": len(hops), "hops_read": int(hops["log_recv_ns"].notna().sum())}
    for name, column in (("send", "d_sndbuf_ns"), ("wire", "d_wire_ns"), ("receive", "d_rcv_ns")):
        found[f"{name}_ns_total"] = int(hops[column].dropna().sum())
    wire_ms = hops["d_wire_ns"].dropna() / 1e6
    found |= {"wire_ms_p50": wire_ms.median(), "wire_ms_p99": wire_ms.quantile(0.99), "wire_ms_max": wire_ms.max()}
    wire_latency_ms = deliveries["wire_latency_ms"]
    found |= {"wire_latency_ms_mean": wire_latency_ms.mean(), "wire_latency_ms_max": wire_latency_ms.max()}
    captured = json.loads((run / "manifest.json").read_bytes())["counters"]
    return found | {"packets_sent": captured["frames_in"], "packets_arrived": captured["frames_out"]}


@pytest.fixture(scope="module")
def theirs(run: Path) -> dict[str, Any]:
    return independent_numbers.compute(run)


def test_at_least_forty_numbers_are_computed_and_all_are_equal(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert len(theirs) >= 40
    different = {
        name: (value, ours.get(name))
        for name, value in theirs.items()
        if not (value == ours.get(name) or value == pytest.approx(ours.get(name), rel=1e-12))
    }
    assert not different


def test_the_recorded_run_has_what_makes_numbers_differ(theirs: dict[str, Any]) -> None:
    """Losses and what was sent again, duplicates, and more than one hop."""
    assert theirs["packets_sent"] - theirs["packets_arrived"] > 40
    assert theirs["retransmitted_bytes"] > 1000
    assert theirs["duplicates_per_delivery"] > 0.5
    assert theirs["hops_max"] > 1


def test_the_second_computation_has_none_of_our_code() -> None:
    tree = ast.parse(Path(independent_numbers.__file__).read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert imported <= {"json", "subprocess", "collections", "itertools", "pathlib", "typing", pd.__name__}
