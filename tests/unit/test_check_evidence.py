"""What the checks are given of a run, and what its stalls explain."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.checks import check_run
from metrics.checks import evidence as parts
from metrics.checks.rule import Absent, CheckRule, Judgement, Limit
from metrics.rundir import INVALID, SUSPECT, AppliedChange, RunDir
from metrics.stalls import Late
from metrics.tables.evidence import copies_show_links, read_changes, read_load
from tests.fabricate import SECOND, ZERO_NS, Fabrication
from tests.sound_evidence import SOUND, change, failures, of_run
from topologies.timeline import Change, encode_changes


@pytest.fixture(scope="module")
def fabrication() -> Fabrication:
    return Fabrication(seed=3, nodes=5, topics=3, messages=20)


@pytest.fixture
def run(fabrication: Fabrication, tmp_path: Path) -> RunDir:
    return RunDir(fabrication.write(tmp_path / "run"))


def test_the_documents_of_a_run_are_read_as_they_are(run: RunDir, fabrication: Fabrication) -> None:
    found = of_run(run, fabrication).emulation
    assert found is not None and found.sweeps is not None
    sent = dict.fromkeys(("before", "during", "after"), 20)
    assert {phase: each.sent + each.exposed for phase, each in found.sweeps.items()} == sent
    errors = found.sweeps["before"].errors
    assert (errors["p99"].limit_ms, errors["p99"].limit_ratio, errors["p50"].probes) == (1.5, 0.01, 10)
    assert 0 < errors["p50"].ms < errors["p99"].ms < 0.2
    assert len(found.pressure) == 11
    assert found.judged_ns == run.judged_ns


def test_a_run_without_its_files_has_parts_that_say_so(run: RunDir, fabrication: Fabrication) -> None:
    for name in ("achieved.parquet", "first_packets.parquet"):
        (run.path / name).unlink()
    found = of_run(run, fabrication)
    assert found.emulation is not None
    assert found.emulation.sweeps is None
    assert found.emulation.first_packets is None
    assert failures(found) == {"certificate": INVALID}


def test_seconds_outside_the_workload_and_the_cool_down_do_not_count(run: RunDir) -> None:
    """The workload begins at ``ZERO_NS``, the cool-down ends 7 s later."""
    rows = [
        {"at_ns": ZERO_NS + second * SECOND, "cpu_busy_ratio": ratio, "steal_ratio": None}
        for second, ratio in ((-1, 0.9), (0, 0.1), (3, None), (6, 0.2), (7, 0.9))
    ]
    types = [("at_ns", pa.int64()), ("cpu_busy_ratio", pa.float64()), ("steal_ratio", pa.float64())]
    run.tables.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), run.tables / "fidelity.parquet")
    busy, steal = read_load(run)
    assert (busy, steal) == ((0.1, 0.2), Absent("no load of the processors was recorded", due=True))
    silent_rows = [row | {"cpu_busy_ratio": None} for row in rows]
    pq.write_table(pa.Table.from_pylist(silent_rows, pa.schema(types)), run.tables / "fidelity.parquet")
    missing = Absent("no load of the processors was recorded", due=True)
    assert read_load(run) == (missing, missing)


def change_nodes(run: RunDir, changes: list[dict[str, Any]]) -> None:
    """Change the nodes of the overlay, the given ones in turn."""
    path = run.path / "overlay.json"
    overlay = json.loads(path.read_bytes())
    overlay["nodes"] = [node | changes[place % len(changes)] for place, node in enumerate(overlay["nodes"])]
    path.write_text(json.dumps(overlay))


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ({"dissemination": {"name": "flood"}}, True),
        ({"dissemination": {"name": "topic-flood"}, "interests": "private"}, True),
        ({"dissemination": {"name": "flood"}, "interests": "private"}, False),
        ({"dissemination": {"name": "mesh"}}, False),
        ({"dissemination": {"name": "flood"}, "behaviour": {"name": "asker"}}, False),
    ],
)
def test_copies_show_links_where_all_honest_nodes_flood_along_them(
    run: RunDir, node: dict[str, Any], shown: bool
) -> None:
    change_nodes(run, [{"dissemination": {"name": "flood"}}, node])
    assert copies_show_links(run) is shown


@pytest.mark.parametrize(("topics", "shown"), [(1, True), (2, False)])
def test_copies_on_several_topics_do_not_show_links(run: RunDir, topics: int, shown: bool) -> None:
    plan = json.loads((run.path / "plan.json").read_bytes())
    plan["experiment"]["workload"]["topics_per_message"] = topics
    (run.path / "plan.json").write_text(json.dumps(plan))
    node = {"dissemination": {"name": "topic-flood", "whole": True}}
    change_nodes(run, [node])
    assert copies_show_links(run) is shown


@pytest.mark.parametrize(
    ("judged", "detail"),
    [
        (
            Judgement(1, 0, 0.3, Limit(0.5, "ms"), "p99 0.3 ms", Late(1200, 3), 10),
            "p99 0.3 ms; {} 3 of 1,200 late hops",
        ),
        (Judgement(1, 0, 0.3, Limit(0.5, "ms"), "", Late(2, 1), 10), "{} 1 of 2 late hops"),
        (Judgement(1, 0, 0.3, Limit(0.5, "ms"), "p99 0.3 ms", Late(0, 0), 10), "p99 0.3 ms"),
    ],
)
def test_a_check_says_how_much_stalls_explain(judged: Judgement, detail: str) -> None:
    check = CheckRule("wire_delay", "certificate", INVALID, lambda: judged, things="hops").check(None)
    assert check is not None and judged.late is not None
    assert check.detail == detail.format("stalls of the host explain")
    assert (check.late, check.explained, check.allowed, check.failed) == (*judged.late, 10, 0)


def test_stalls_change_no_verdict() -> None:
    """What they explain is in the detail, and in ``explained``."""
    found = change(SOUND, receive={"p99": 20.0, "late": Late(40, 40)})
    assert failures(found) == {"receive_delay": SUSPECT}
    [check] = [check for check in check_run(found) if check.name == "receive_delay"]
    assert (check.late, check.explained, check.allowed) == (40, 40, 10)
    assert check.detail.endswith("stalls of the host explain 40 of 40 late frames")


def test_pauses_on_real_machines_are_evidence_with_the_error_of_their_clocks(tmp_path: Path) -> None:
    real = {"testbed": "remote", "can": ("pause", "probe")}
    run_dir = Fabrication(messages=1).write(tmp_path / "run", **real)
    assert read_changes(RunDir(run_dir)) == Absent("the experiment has no faults")
    zero_ns = RunDir(run_dir).manifest.zero_ns
    (run_dir / "changes.jsonl").write_bytes(encode_changes([Change(SECOND, 0, 2 * SECOND, paused=(1,))]))
    (run_dir / "faults.jsonl").write_text(f'{{"asked_ns": {zero_ns + SECOND}, "applied_ns": {zero_ns + SECOND + 7}}}\n')
    (run_dir / "clocks.json").write_text('{"sandbox": {"realtime_ns": 3, "monotonic_ns": 4, "error_ns": 5}}')
    found = read_changes(RunDir(run_dir))
    assert isinstance(found, parts.Changes)
    assert (found.applied, found.asked, found.error_ns) == (
        (AppliedChange(zero_ns + SECOND, zero_ns + SECOND + 7),), 2, 5,
    )  # fmt: skip
