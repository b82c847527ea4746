"""Traces that do not say what happened, over captures and documents that do: each edit is found, by the check named."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec import structs

from benchmarks._edited_runs import (
    clock_moved,
    copy_run,
    deliveries_later,
    edit_trace,
    half_of_delivers,
    no_duplicates,
    no_trace,
    node_reads_late,
    node_sends_late,
    nodes_of,
    relays_as_delivers,
    repeated_delivers,
)
from metrics import summary, tables
from metrics.rundir import Summary
from peer.trace import TraceEvent
from tests.fabricate import Fabrication

NODE = 3


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fabrication = Fabrication(seed=5, nodes=8, topics=3, messages=120, retransmit_ratio=0, relays=True)
    return fabrication.write(tmp_path_factory.mktemp("recorded") / "run")


def analyse(run_dir: Path) -> Summary:
    tables.build(run_dir)
    return summary.write(run_dir)


def failed(found: Summary) -> dict[str, str]:
    return {check.name: check.detail for check in found.checks if check.failed}


def test_nothing_is_found_in_traces_that_are_not_edited(recorded: Path, tmp_path: Path) -> None:
    found = analyse(copy_run(recorded, tmp_path / "run"))
    assert failed(found) == {}
    tested = {check.name: check.tested for check in found.checks}
    judged = ["node_send_delay", "node_receive_delay", "node_handling_delay"]
    assert [tested[name] for name in judged] == [8, 8, 8]
    assert tested["copies_accounted"] > 500


EDITS: list[tuple[Callable[[Path], int], str, str]] = [
    (partial(half_of_delivers, node=NODE), "copies_accounted", "copies were read without an event"),
    (no_duplicates, "copies_accounted", "copies were read without an event"),
    (relays_as_delivers, "copies_accounted", "messages were delivered without a subscription"),
    (repeated_delivers, "copies_accounted", "first copies are traced again"),
    (partial(deliveries_later, ms=8), "node_handling_delay", "node 0 ("),
    (partial(node_reads_late, node=NODE, ms=5), "node_receive_delay", f"node {NODE} ("),
    (partial(node_sends_late, node=NODE, ms=8), "node_send_delay", f"node {NODE} ("),
    (partial(clock_moved, node=NODE, ms=5), "causal_order", ""),
    (partial(clock_moved, node=NODE, ms=-5), "causal_order", ""),
]
"""The edit, the check that fails, and words of its detail. All are faults of ``test_verdict_faults``, too, which finds
each in every run of the tests."""


@pytest.mark.long
@pytest.mark.parametrize(("edit", "check", "detail"), EDITS, ids=range(len(EDITS)))
def test_each_edit_is_found_by_its_check(
    recorded: Path, tmp_path: Path, edit: Callable[[Path], int], check: str, detail: str
) -> None:
    run_dir = copy_run(recorded, tmp_path / "run")
    assert edit(run_dir)
    assert detail in failed(analyse(run_dir))[check]


def say_instead(wanted: Callable[[TraceEvent], bool], **changes: Any) -> Callable[[TraceEvent], list[TraceEvent]]:
    """An edit that gives other values to some fields of some events."""
    return lambda event: [structs.replace(event, **changes) if wanted(event) else event]


def takes(event: TraceEvent) -> bool:
    """Whether it is the delivery of another node's message."""
    return event.event == "deliver" and event.peer is not None


@pytest.mark.parametrize(
    ("word", "detail"),
    [
        ("duplicate", "duplicates have no first copy"),
        ("relay", "messages were relayed in spite of a subscription"),
    ],
)
def test_a_delivery_under_another_name_is_found(recorded: Path, tmp_path: Path, word: str, detail: str) -> None:
    run_dir = copy_run(recorded, tmp_path / "run")
    assert edit_trace(run_dir, NODE, say_instead(takes, event=word))
    assert detail in failed(analyse(run_dir))["copies_accounted"]


@pytest.mark.parametrize("cut", [False, True], ids=["missing", "cut off"])
def test_what_a_lost_trace_does_not_say_is_unknown_and_not_undelivered(
    recorded: Path, tmp_path: Path, cut: bool
) -> None:
    run_dir = copy_run(recorded, tmp_path / "run")
    if cut:
        path = run_dir / "trace" / f"{NODE}.jsonl"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        no_trace(run_dir, NODE)
    found = analyse(run_dir)
    rows = pq.read_table(run_dir / "tables" / "deliveries.parquet").to_pandas()
    unknown = rows[~rows["known"]]
    assert set(unknown["node"]) == {NODE}
    assert unknown["delivered_ns"].isna().all()
    theirs = rows[rows["node"] == NODE]
    assert len(unknown) == theirs["delivered_ns"].isna().sum()
    assert (len(unknown) < len(theirs)) == cut
    assert found.headline["deliveries_unknown"] == len(unknown) > 0
    assert found.headline["delivery_ratio"] == 1.0
    assert set(failed(found)) == {"traces_complete"}


def test_a_program_that_does_not_know_the_sender_of_a_message_has_delivered_it(recorded: Path, tmp_path: Path) -> None:
    run_dir = copy_run(recorded, tmp_path / "run")
    assert all(edit_trace(run_dir, node, say_instead(takes, peer=None)) for node in nodes_of(run_dir))
    found = analyse(run_dir)
    assert found.headline["delivery_ratio"] == 1.0
    assert failed(found) == {}


def test_a_program_without_frames_in_its_trace_is_not_judged_by_them(recorded: Path, tmp_path: Path) -> None:
    run_dir = copy_run(recorded, tmp_path / "run")
    for node in nodes_of(run_dir):
        assert edit_trace(run_dir, node, lambda event: [] if event.event in ("send", "receive") else [event])
    found = analyse(run_dir)
    assert found.headline["delivery_ratio"] == 1.0
    tested = {check.name: (check.tested, check.failed) for check in found.checks}
    assert tested["copies_accounted"] == (0, 0)
    assert tested["open_connections"][0] > 0, "links are compared without frames"
    assert "open_connections" not in failed(found)
