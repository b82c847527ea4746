"""Emulated runs whose peers are the example programs of docs/programs.md."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from metrics.tables.overhead import FRAME_CLASSES
from tests.e2e.run_experiment import QUICKLY, ROOT, Finished, finish, speaks_of_load, start

pytestmark = [pytest.mark.root, pytest.mark.slow]

EXAMPLES = ROOT / "playbooks/programs"
EXPERIMENT = """
name = "programs"
protocol = "random"

[underlay]
kind = "measured-cities"
hosts = 6

[workload]
topics = 3
publish_rate_per_s = 10
warmup_s = 2
duration_s = 6
cooldown_s = 2

[interests]
ratio = 0.7

[prometheus]
enabled = false

[peer]
events = "lines"
connect = 3
"""
CHURN = """
[churn]
kind = "script"
script = [
    { at_s = 1, node = 1, action = "leave" },
    { at_s = 2, node = 2, action = "crash" },
    { at_s = 3, node = 1, action = "join" },
    { at_s = 4, node = 2, action = "join" },
]
"""


def run(folder: Path, command: list[str], says: list[str], more: str = "") -> Finished:
    (folder / "programs.toml").write_text(
        f"{EXPERIMENT}command = {json.dumps(command)}\nsays = {json.dumps(says)}\n{more}"
    )
    out = folder / "run"
    return Finished(out, finish(start("run", folder / "programs.toml", *QUICKLY, "--out", out, "--json")))


def check(done: Finished) -> dict[str, Any]:
    assert [reason for reason in done.summary["reasons"] if not speaks_of_load(reason)] == []
    headline = done.summary["headline"]
    assert headline["delivery_ratio"] > 0.9
    parts = dict.fromkeys(("network", "machine", "packets", "deliveries"), "judged")
    assert done.summary["scope"] == parts | {"frames": "not applicable"}
    assert 0 < headline["least_delay_ms_p50"] <= headline["propagation_delay_ms_p50"]
    overhead = pq.read_table(done.run_dir / "tables/overhead.parquet")
    assert sum(overhead["opaque_bytes"].to_pylist()) > 0
    assert {overhead[name].null_count for name in FRAME_CLASSES} == {len(overhead)}
    assert {state["state"] for state in done.manifest["final_states"]} == {"exited"}
    unknown = ("degree_mean", "view_size_total_mean", "diameter", "topics_partitioned", "control_bytes_per_peer_per_s")
    assert [headline[name] for name in (*unknown, "hops_p50")] == [None] * 6
    overlay = pq.read_table(done.run_dir / "tables/overlay.parquet", columns=["physical_links", "components"])
    assert all(column.null_count == len(overlay) > 0 for column in overlay.columns)
    return headline


def test_programs_come_and_go_under_their_names(tmp_path: Path) -> None:
    words = ["sh", "-c", f"hostname >&2; getent hosts node0 >&2; exec {sys.executable} {EXAMPLES / 'flood.py'}"]
    done = run(tmp_path, words, ["duplicate"], CHURN)
    headline = check(done)
    assert headline["duplicates_per_delivery"] > 0
    for node in range(6):
        said = (done.run_dir / f"logs/{node}.log").read_text().splitlines()
        first = pq.read_table(done.run_dir / "tables/nodes.parquet")["wan_ip"][0].as_py()
        assert said[:2] == [f"node{node}", said[1]]
        assert said[1].split()[:2] == [first, "node0"]
        assert len(said[1].split()) == 3
        assert len(said) == (4 if node in (1, 2) else 2)


@pytest.mark.long
def test_a_program_in_c_says_no_more_than_it_must(tmp_path: Path) -> None:
    headline = check(run(tmp_path, ["tcc", "-run", str(EXAMPLES / "flood.c")], []))
    assert headline["delivery_ratio"] == 1
    assert headline["duplicates_per_delivery"] is None


EARLY = 'print("deliver", message_id, f"ts_ns={time.monotonic_ns() - 60_000_000}", flush=True)'
LIES = {
    "early": EARLY,
    "silent": 'message_id % 2 or print("deliver", message_id, flush=True)',
    "early, or silent": f"message_id % 2 or {EARLY}",
}
"""How the example in Python reports deliveries if it lies."""


def lying(lie: str) -> list[str]:
    """The command of the example with a lie. A file in a temporary folder would be hidden from peers."""
    text, honest = (EXAMPLES / "flood.py").read_text(), '"publish" if source is None else "deliver", message_id'
    assert text.count(honest) == 1
    told = f'print("publish", message_id, flush=True) if source is None else {lie}'
    return ["python3", "-c", "import time\n" + text.replace(f"print({honest}, flush=True)", told)]


@pytest.mark.long
@pytest.mark.parametrize("lie", LIES)
def test_early_deliveries_make_a_run_invalid_and_those_that_are_not_reported_are_none(tmp_path: Path, lie: str) -> None:
    """docs/programs.md: a program that does not report half of its deliveries is not seen to lie.

    ``test_earliest`` says the same of made-up reports in every run of the tests.
    """
    done = run(tmp_path, lying(LIES[lie]), ["duplicate"])
    reasons = [reason for reason in done.summary["reasons"] if not speaks_of_load(reason)]
    if "early" in lie:
        assert done.summary["verdict"] == "invalid"
        [reason] = [reason for reason in reasons if "possible delays" in reason]
        assert "deliveries came before packets could have brought the message" in reason
    else:
        assert reasons == []
    delivered = done.summary["headline"]["delivery_ratio"]
    assert 0.3 < delivered < 0.7 if "silent" in lie else delivered > 0.9
