"""One experiment at its true speed and at half of it ends alike, and nothing that is reported tells which was which.

Stated tolerances: the same underlay, overlay and schedule byte for byte; the same set of deliveries; view sizes,
degrees and control traffic within 15 %; median delay within 5 ms or 5 %. Control traffic is heartbeats above all: a
timer that did not stretch would double it. Access rates and jitter are on, so they must stretch too.
``tests/e2e/test_run_dilated.py`` has a brief dilated run alone.
"""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from metrics.rundir import Manifest
from tests.e2e.run_experiment import IN_PROCESS, await_step, finish, speaks_of_load, start

pytestmark = [pytest.mark.root, pytest.mark.long]

DILATION = 2
DURATION_S = 5
TOLERANCE_RATIO = 0.15
DELAY_TOLERANCE_MS = 5.0

EXPERIMENT = f"""
name = "time-dilation"
protocol = "spidercast"
seed = 5

[underlay]
kind = "unit-square"
hosts = 8
side_ms = 60
jitter = 1.0
rate_mbit = 20

[spidercast]
heartbeat_s = 0.25
connect_timeout_s = 0.5
greedy_coverage = 2

[workload]
topics = 4
publish_rate_per_s = 10
warmup_s = 2
duration_s = {DURATION_S}
cooldown_s = 3

[interests]
kind = "popularity"
subscriptions_min = 2
subscriptions_max = 2

[prometheus]
enabled = false
"""


class Outcome:
    """What is compared of a run; ``workload_s`` is how long its workload took by the clock on the wall."""

    def __init__(self, run_dir: Path, summary: dict[str, Any], workload_s: float) -> None:
        self.run_dir = run_dir
        self.workload_s = workload_s
        self.headline = summary["headline"]
        self.delay_ms = self.headline["propagation_delay_ms_p50"]
        self.busy = any(speaks_of_load(reason) for reason in summary["reasons"])
        self.failed = {check["name"] for check in summary["checks"] if check["failed"]}
        self.manifest = msgspec.json.decode((run_dir / "manifest.json").read_bytes(), type=Manifest)
        rows = pq.read_table(run_dir / "tables" / "deliveries.parquet").to_pylist()
        self.delivered = {(row["message_id"], row["node"]) for row in rows if row["delivered_ns"] is not None}

    def instants_s(self, name: str) -> list[float]:
        """The instants of a file of JSON lines, from the workload's zero."""
        lines = (self.run_dir / name).read_text().splitlines()
        return [(json.loads(line)["at_ns"] - self.manifest.zero_ns) / 1e9 for line in lines]


def perform(folder: Path, dilation: int) -> Outcome:
    file = folder / "experiment.toml"
    file.write_text(EXPERIMENT)
    run_dir = folder / str(dilation)
    process = start("run", file, "--set", f"time_dilation={dilation}", *IN_PROCESS, "--out", run_dir, "--json")
    await_step(process, "warmup")
    begun_s = time.monotonic()
    await_step(process, "workload")
    workload_s = time.monotonic() - begun_s
    return Outcome(run_dir, finish(process), workload_s)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Outcome]:
    """A machine that stood still says nothing: then, and only then, there are other runs."""
    for _ in range(3):
        folder = tmp_path_factory.mktemp("dilation")
        plain, slow = perform(folder, 1), perform(folder, DILATION)
        if agree(plain, slow) or not (plain.busy or slow.busy):
            break
    return plain, slow


def agree(plain: Outcome, slow: Outcome) -> bool:
    """Whether two runs are those of one network: who got what, after what time, and for how long it ran."""
    return plain.delivered == slow.delivered and have_like_delays(plain, slow) and take_as_asked(plain, slow)


def take_as_asked(plain: Outcome, slow: Outcome) -> bool:
    asked_s = [DURATION_S, DILATION * DURATION_S]
    return bool([plain.workload_s, slow.workload_s] == pytest.approx(asked_s, rel=0.2))


def have_like_delays(plain: Outcome, slow: Outcome) -> bool:
    return bool(slow.delay_ms == pytest.approx(plain.delay_ms, rel=0.05, abs=DELAY_TOLERANCE_MS))


def test_the_dilated_run_takes_longer(outcomes: tuple[Outcome, Outcome]) -> None:
    assert take_as_asked(*outcomes), [outcome.workload_s for outcome in outcomes]


def test_both_run_the_same_plan(outcomes: tuple[Outcome, Outcome]) -> None:
    plain, slow = (outcome.manifest.hashes for outcome in outcomes)
    for name in ("underlay", "overlay", "schedule"):
        assert plain[name] == slow[name]


def test_both_deliver_the_same(outcomes: tuple[Outcome, Outcome]) -> None:
    plain, slow = outcomes
    assert plain.delivered == slow.delivered
    assert plain.delivered


@pytest.mark.parametrize(
    "name",
    [
        "degree_mean", "view_size_total_mean", "view_size_unique_mean", "link_sharing_ratio",
        "control_bytes_per_peer_per_s",
    ],
)  # fmt: skip
def test_both_build_the_same_kind_of_overlay(outcomes: tuple[Outcome, Outcome], name: str) -> None:
    plain, slow = (outcome.headline[name] for outcome in outcomes)
    assert slow == pytest.approx(plain, rel=TOLERANCE_RATIO)


def test_both_take_as_long_to_deliver(outcomes: tuple[Outcome, Outcome]) -> None:
    plain, slow = outcomes
    assert have_like_delays(plain, slow), (plain.delay_ms, slow.delay_ms)


def test_the_network_is_certified_against_what_was_asked(outcomes: tuple[Outcome, Outcome]) -> None:
    plain, slow = (pq.read_table(outcome.run_dir / "achieved.parquet").to_pandas() for outcome in outcomes)
    for found in (plain, slow):
        before = found[found["phase"] == "before"].sort_values(["src", "dst"])
        assert np.median(np.abs(before["rtt_ms"] - before["asked_rtt_ms"])) < DELAY_TOLERANCE_MS
    asked = [set(found["asked_rtt_ms"]) for found in (plain, slow)]
    assert asked[0] == asked[1]
    sampled = [(found["phase"] == "during").sum() for found in (plain, slow)]
    assert sampled[1] == pytest.approx(sampled[0], rel=0.2)


@pytest.mark.parametrize("name", ["dataplane.jsonl", "pressure.jsonl"])
def test_there_is_a_line_a_virtual_second(outcomes: tuple[Outcome, Outcome], name: str) -> None:
    for outcome in outcomes:
        inside = [at_s for at_s in outcome.instants_s(name) if 0 <= at_s < DURATION_S]
        assert len(inside) == pytest.approx(DURATION_S, abs=1)


def test_phases_and_exits_are_in_virtual_time(outcomes: tuple[Outcome, Outcome]) -> None:
    for outcome in outcomes:
        manifest = outcome.manifest
        phases = {phase.name: phase for phase in manifest.phases}
        assert phases["workload"].start_ns == manifest.zero_ns
        assert phases["workload"].end_ns - manifest.zero_ns == DURATION_S * 10**9
        ends = [state.at_ns for state in manifest.final_states if state.at_ns is not None]
        assert len(ends) == 8
        assert all(phases["stop"].start_ns < end_ns < phases["stop"].end_ns for end_ns in ends)


def test_traces_and_captures_are_on_one_clock(outcomes: tuple[Outcome, Outcome]) -> None:
    for outcome in outcomes:
        assert not outcome.failed & {
            "causal_order", "delay_order", "frame_sets", "stream_coverage", "conservation", "overhead_identity",
            "schedule_executed", "delivery_rows", "plane_present",
        }  # fmt: skip


def test_an_instant_leads_back_to_real_time(outcomes: tuple[Outcome, Outcome]) -> None:
    for outcome, dilation in zip(outcomes, (1, DILATION), strict=True):
        manifest = outcome.manifest
        assert manifest.time_dilation == dilation
        closed_s = (outcome.run_dir / "manifest.json").stat().st_mtime
        last_ns = max(phase.end_ns for phase in manifest.phases)
        assert (last_ns * dilation + manifest.epoch_offset_ns) / 1e9 == pytest.approx(closed_s, abs=10)


def test_only_the_report_of_a_dilated_run_says_so(outcomes: tuple[Outcome, Outcome]) -> None:
    plain, slow = ((outcome.run_dir / "report" / "index.html").read_text() for outcome in outcomes)
    assert "times slower than reported" not in plain
    assert f"{DILATION} times slower than reported" in slow
