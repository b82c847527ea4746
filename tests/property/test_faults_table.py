"""The ``faults`` table: phases between faults, and the time to recover against a loop over all deliveries."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.executors.in_process import InProcess
from metrics.tables.faults import RECOVERED, STEP_NS, FaultSpan, build_faults, find_spans
from metrics.tables.schemas import FAULTS, arrow_schema
from tests.examples import examples
from topologies.timeline import Change

SECOND, MS = 1_000_000_000, 1_000_000
COLUMNS = ("node", "publish_ns", "message_id", "delivered_ns", "known")
ADVERSARY = 9


def change(fault: int, from_s: int, to_s: int | None) -> Change:
    return Change(from_ns=from_s * SECOND, to_ns=None if to_s is None else to_s * SECOND, fault=fault)


def spans_s(*changes: Change) -> list[tuple[int, ...]]:
    found = find_spans(changes, 0, 100 * SECOND)
    return [(span.fault, *(at_ns // SECOND for at_ns in span[1:])) for span in found]


def test_a_phase_ends_where_the_next_fault_begins():
    assert spans_s(change(0, 10, 20), change(1, 40, 50)) == [(0, 0, 10, 20, 40), (1, 20, 40, 50, 100)]


def test_a_fault_that_flaps_lasts_from_its_first_change_to_its_last():
    assert spans_s(change(0, 10, 11), change(0, 15, 16)) == [(0, 0, 10, 16, 100)]


@pytest.mark.parametrize(("to_s", "found"), [(None, (0, 0, 10, 100, 100)), (300, (0, 0, 10, 100, 100))])
def test_a_fault_ends_with_the_publishing_window_at_the_latest(to_s: int | None, found: tuple[int, ...]):
    assert spans_s(change(0, 10, to_s)) == [found]


def test_faults_outside_the_publishing_window_have_empty_phases():
    assert spans_s(change(0, -5, -2), change(1, 105, 110)) == [(0, -5, -5, -2, 100), (1, 0, 105, 105, 105)]


def build(rows: list[tuple[int, int, float | None, bool]], span: FaultSpan) -> list[dict[str, Any]]:
    """The rows of deliveries (node, publish_ns, latency_ms, known), each of a message of its own, in two parts."""
    schema = pa.schema([(name, arrow_schema("deliveries").field(name).type) for name in COLUMNS])
    with tempfile.TemporaryDirectory() as name, InProcess(2) as executor:
        folder = Path(name)
        (folder / "deliveries").mkdir()
        for part in range(2):
            named = [
                dict(
                    zip(
                        COLUMNS,
                        (node, at_ns, message, None if late is None else at_ns + round(late * MS), known),
                        strict=True,
                    )
                )
                for message, (node, at_ns, late, known) in enumerate(rows)
                if message % 2 == part
            ]
            pq.write_table(pa.Table.from_pylist(named, schema), folder / "deliveries" / f"part-{part}.parquet")
        return build_faults(executor, [span], folder / "deliveries", frozenset({ADVERSARY}), folder / "weighed")


SPAN = FaultSpan(0, 0, 10 * SECOND, 20 * SECOND, 30 * SECOND)


def test_each_phase_has_the_messages_that_were_published_in_it():
    rows = [(1, 0, 10.0, True), (1, 9 * SECOND, 30.0, True), (1, 10 * SECOND, None, True), (2, 19 * SECOND, 50.0, True)]
    rows += [(1, 20 * SECOND, 40.0, True), (1, 25 * SECOND, 20.0, True), (1, 30 * SECOND, 1.0, True)]
    before, during, after = build([*rows, (ADVERSARY, 5, None, True)], SPAN)
    assert [row["messages"] for row in (before, during, after)] == [2, 2, 2]
    assert [row["delivery_ratio"] for row in (before, during, after)] == [1.0, 0.5, 1.0]
    assert [row["latency_ms_max"] for row in (before, during, after)] == [30.0, 50.0, 40.0]
    assert [row["recovered_ms"] for row in (before, during, after)] == [None, None, 100.0]
    assert set(before) == set(arrow_schema(FAULTS).names)


def test_without_a_delivery_before_there_is_nothing_to_recover_to():
    *_, after = build([(1, 25 * SECOND, 1.0, True)], SPAN)
    assert after["recovered_ms"] is None


deliveries = st.lists(
    st.tuples(
        st.sampled_from([1, 2, ADVERSARY]),
        st.integers(0, 320).map(lambda tenths: tenths * SECOND // 10 + 7),
        st.sampled_from([None, 5.0, 10.0, 20.0]),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=60,
)


@given(deliveries)
@settings(max_examples=examples(80), deadline=None)
def test_from_the_recovery_on_almost_all_deliveries_are_as_fast_as_before(
    rows: list[tuple[int, int, float | None, bool]],
):
    honest = [(at_ns, late, known) for node, at_ns, late, known in rows if node != ADVERSARY]
    limit = max((late for at_ns, late, _ in honest if at_ns < SPAN.from_ns and late is not None), default=None)
    *_, found = build(rows, SPAN)
    wanted = None
    for step in range(100 if limit is not None else 0):
        since_ns = SPAN.to_ns + step * STEP_NS
        later = [late for at_ns, late, known in honest if known and since_ns <= at_ns < SPAN.after_ns]
        in_time = [late for late in later if late is not None and late <= limit]
        if later and len(in_time) >= RECOVERED * len(later):
            wanted = step * STEP_NS / MS
            break
    assert found["recovered_ms"] == wanted
