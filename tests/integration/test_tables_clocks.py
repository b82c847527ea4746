"""The analysis of a run on machines with clocks of their own: their traces are brought to one clock first."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from metrics import summary, tables
from metrics.executors.in_process import InProcess
from metrics.rundir import Check, RunDir, Summary
from metrics.tables.hop_evidence import Circumstances, weigh_hops
from metrics.tables.schemas import TABLES
from tests.fabricate import Fabrication

MS = 1_000_000
AHEAD_NS = 7_654_321_012_345_678
"""The second machine was booted so long before ours."""


def remote_run(run_dir: Path, ahead_ns: int, estimated_ns: int, error_ns: int) -> Path:
    """Nodes 0 to 2 on machine m0 with our clock, 3 to 5 on m1, whose clock is ahead, perhaps not by the estimate.

    The toy network's delays are 5 to 80 ms.
    """
    fabrication = Fabrication(seed=3, nodes=6, topics=3, messages=30, duration_s=2.0)
    for node in (3, 4, 5):
        fabrication.traces[node] = [replace(it, ts_ns=it.ts_ns + ahead_ns) for it in fabrication.traces[node]]
    fabrication.write(run_dir, testbed="remote", capture_files=[], counters={})
    shutil.rmtree(run_dir / "capture")
    for name in ("achieved.parquet", "dataplane.jsonl", "pressure.jsonl"):
        (run_dir / name).unlink()
    plan = json.loads((run_dir / "plan.json").read_bytes())
    plan["experiment"]["testbed"] = "remote"
    for place in plan["placement"]:
        place["machine"] = "m0" if place["node"] < 3 else "m1"
    (run_dir / "plan.json").write_text(json.dumps(plan))
    clocks = {
        "m0": {"realtime_ns": 0, "monotonic_ns": 0, "error_ns": 0},
        "m1": {"realtime_ns": 5, "monotonic_ns": estimated_ns, "error_ns": error_ns},
    }
    (run_dir / "clocks.json").write_text(json.dumps(clocks))
    return run_dir


class Analysed:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        tables.build(run_dir)
        self.summary: Summary = summary.write(run_dir)

    def table(self, name: str) -> pd.DataFrame:
        rows = pq.read_table(self.run_dir / "tables" / f"{name}.parquet").to_pandas()
        single = [name for name in rows if not rows[name].map(lambda value: isinstance(value, np.ndarray)).any()]
        return rows.sort_values(single, ignore_index=True)

    def check(self, name: str) -> Check:
        return next(check for check in self.summary.checks if check.name == name)


def between(run: Analysed) -> pd.DataFrame:
    """The hops from one machine to the other."""
    return run.table("hops").query("(src_node < 3) != (dst_node < 3)")


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(remote_run(tmp_path_factory.mktemp("even") / "run", 0, 0, 2 * MS))


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(remote_run(tmp_path_factory.mktemp("skewed") / "run", AHEAD_NS, AHEAD_NS, 2 * MS))


def test_tables_are_those_of_the_same_run_with_one_clock(even: Analysed, skewed: Analysed) -> None:
    assert len(even.table("hops")) > 100
    for name in TABLES:
        pd.testing.assert_frame_equal(even.table(name), skewed.table(name), obj=name)
    assert even.summary == skewed.summary


def test_the_uncertainty_is_a_check_that_holds_where_all_delays_are_longer(skewed: Analysed) -> None:
    check = skewed.check("clocks")
    assert (check.tested, check.failed, check.worst) == (len(between(skewed)), 0, 2)
    assert "within 2 ms" in check.detail
    assert skewed.check("causal_order").failed == 0


OFF_NS = 60 * MS


@pytest.fixture(scope="module")
def off(tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """What m1 wrote seems 60 ms older than it is; the estimate allows for that."""
    return Analysed(remote_run(tmp_path_factory.mktemp("off") / "run", AHEAD_NS, AHEAD_NS + OFF_NS, OFF_NS))


def test_a_clock_that_is_off_within_its_bound_breaks_no_order_but_leaves_delays_unresolved(
    even: Analysed, off: Analysed
) -> None:
    delays = between(off).eval("log_recv_ns - log_send_ns")
    assert delays.min() < 0
    assert off.check("causal_order").failed == 0
    assert 0 < off.check("clocks").failed == (delays <= OFF_NS).sum() < len(delays)
    assert any("took no longer than that" in reason for reason in off.summary.reasons)
    keys = ["message_id", "node"]
    latencies = even.table("deliveries").merge(off.table("deliveries"), on=keys)
    assert (latencies["latency_ms_x"] - latencies["latency_ms_y"]).abs().max() == pytest.approx(OFF_NS / MS)


def test_a_clock_that_is_off_beyond_its_bound_breaks_the_order(off: Analysed, tmp_path: Path) -> None:
    run_dir = shutil.copytree(off.run_dir, tmp_path / "run")
    clocks = json.loads((run_dir / "clocks.json").read_bytes())
    clocks["m1"]["error_ns"] = MS
    (run_dir / "clocks.json").write_text(json.dumps(clocks))
    delays = between(off).eval("log_recv_ns - log_send_ns")
    run = RunDir(run_dir)
    with InProcess(1) as executor:
        found = weigh_hops(executor, run, Circumstances.of(run), tmp_path / "weighed").order
    assert found.failed == (delays < -MS).sum() > 0
    assert found.worst == -MS - delays.min()
