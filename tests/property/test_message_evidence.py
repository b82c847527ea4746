"""What tasks say of messages, deliveries and copies, against loops over dictionaries."""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.changes import PairChanges
from metrics.checks.rule import Limit
from metrics.executors.in_process import InProcess
from metrics.measures.distribution import Distribution
from metrics.recorded.stalls import Late, Stalls
from metrics.rundir.files import table_file
from metrics.tables import message_evidence, standouts
from metrics.tables.buckets import divide, of_messages
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.message_evidence import MessageEvidence, MessageSources, weigh_messages
from metrics.tables.schemas import arrow_schema
from metrics.tables.standouts import MOST_SLOWEST, find_standouts, merge_standouts, read_standouts
from metrics.tables.timespans import SECOND_NS
from metrics.totals import NodeDelays, SlowDelivery, Standouts
from tests.examples import examples

Row = dict[str, Any]

BUCKETS = 3
ZERO_NS = 1000
ADVERSARY = 3
LIMIT_NS = SECOND_NS
LEAVING = ("tap_tx_ns", "log_send_ns")

nodes = st.integers(0, ADVERSARY)
messages = st.integers(0, 2).flatmap(lambda node: st.integers(0, 3).map(lambda number: node << 32 | number))
maybe_instant = st.none() | st.integers(-3, 3).map(lambda half: ZERO_NS + half * SECOND_NS // 2)

message_rows = st.lists(
    st.fixed_dictionaries(
        {
            "message_id": messages,
            "scheduled_ns": maybe_instant,
            "publish_ns": maybe_instant,
            "n_subscribers": st.integers(0, 3),
            "t50_ms": st.none() | st.sampled_from([0.5, 1.0, 2.0, 7.25]),
        }
    ),
    max_size=8,
    unique_by=lambda row: row["message_id"],
)
pairs = st.fixed_dictionaries(
    {
        "message_id": messages,
        "topic": st.integers(0, 2),
        "node": nodes,
        "delivered_ns": maybe_instant,
        "wire_latency_ms": st.none() | st.integers(-2, 2).map(lambda half: half * 500.0),
        "hops": st.none() | st.integers(0, 4),
        "repeats": st.integers(0, 3),
        "copies": st.integers(0, 3),
        "direct_delay_ms": st.none() | st.sampled_from([0.5, 20.0]),
        "stretch": st.none() | st.sampled_from([-1.5, 0.0, 2.25]),
        "known": st.booleans(),
    }
)
copy_rows = st.lists(
    st.fixed_dictionaries(
        {
            "message_id": messages,
            "src_node": st.none() | nodes,
            "dst_node": nodes,
            "log_send_ns": maybe_instant,
            "tap_tx_ns": maybe_instant,
            "d_tcp_ns": st.none() | st.sampled_from([0, 3_000_000]),
            **dict.fromkeys(("is_dup", "is_relay", "at_relay"), st.none() | st.booleans()),
        }
    ),
    max_size=12,
)


@pytest.fixture(autouse=True, scope="module")
def limits() -> Any:
    """So that half seconds are not late, and more than one is."""
    limit = Limit(LIMIT_NS / 1e6, "ms")
    with (
        patch.object(message_evidence, "PUBLISH_LAG_P99", limit),
        patch.object(message_evidence, "DELAY_AGREEMENT_P99", limit),
    ):
        yield


@contextmanager
def written(said: list[Row], expected: list[Row], copies: list[Row], *, may_wait: bool = False) -> Iterator[Any]:
    """The tables of a run in a folder, as tasks read them."""
    with tempfile.TemporaryDirectory() as name:
        schemas = {table: arrow_schema(table) for table in ("messages", "deliveries")}
        schemas["transmissions"] = TRANSMISSIONS
        paths = {table: Path(name) / table_file(table) for table in schemas}
        for (table, schema), rows in zip(schemas.items(), (said, expected, copies), strict=True):
            paths[table].mkdir()
            whole = pa.Table.from_pylist(rows, schema)
            for number, own in enumerate(divide(whole, of_messages(whole["message_id"], BUCKETS), BUCKETS)):
                part = f"part-0-{number}" if table == "transmissions" else f"part-{number}"
                pq.write_table(own, paths[table] / f"{part}.parquet")
        yield MessageSources(
            **paths,
            adversaries=frozenset({ADVERSARY}),
            zero_ns=ZERO_NS,
            stalls=Stalls(*np.empty((2, 0, 2), np.int64)),
            may_wait=may_wait,
            changes=PairChanges((), 0),
        )


def weigh(said: list[Row], expected: list[Row], copies: list[Row], *, may_wait: bool = False) -> MessageEvidence:
    with written(said, expected, copies, may_wait=may_wait) as sources, InProcess(1) as executor:
        return weigh_messages(executor, sources, sources.messages.parent / "weighed", BUCKETS)


def add_up(pairs: Iterable[tuple[int, tuple[Any, ...]]]) -> dict[int, tuple[int, ...]]:
    """The sums of tuples by key, with how many there are of each."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for key, values in pairs:
        found[key].append((1, *map(bool, values)))
    return {key: tuple(map(sum, zip(*each, strict=True))) for key, each in sorted(found.items())}


def second(at_ns: int) -> int:
    return (at_ns - ZERO_NS) // SECOND_NS


def check_values(found: Distribution, values: Iterable[float | None]) -> None:
    known = sorted(value for value in values if value is not None)
    assert (found.count, list(found.values)) == (len(known), known)  # so few are all kept
    assert found.total == pytest.approx(sum(known))


def outcome(row: Row) -> tuple[bool, bool]:
    """Whether a delivery was made, and whether nobody knows that."""
    return row["delivered_ns"] is not None, not row["known"]


def complete(expected: list[Row], said: list[Row]) -> list[Row]:
    """Deliveries with the columns that follow from others."""
    publish_ns = {row["message_id"]: row["publish_ns"] for row in said}
    found = []
    for row in expected:
        since, until = publish_ns.get(row["message_id"]), row["delivered_ns"]
        latency_ms = None if since is None or until is None else (until - since) / 1e6
        own = {"publisher": row["message_id"] >> 32, "publish_ns": since, "latency_ms": latency_ms}
        found.append(row | own)
    return found


@settings(max_examples=examples(60), deadline=None)
@given(message_rows, st.lists(pairs, max_size=12))
def test_counts_and_values_of_deliveries_are_what_loops_say(said: list[Row], expected: list[Row]) -> None:
    expected = complete(expected, said)
    found = weigh(said, expected, [])
    totals = found.totals
    honest = [row for row in expected if row["node"] != ADVERSARY]
    theirs = [row for row in expected if row["node"] == ADVERSARY]
    attacked = (len(theirs), *(sum(each) for each in zip(*map(outcome, theirs), strict=True))) if theirs else (0, 0, 0)
    made = [row for row in honest if row["delivered_ns"] is not None]
    assert found.counts == (
        len(said),
        sum(row["scheduled_ns"] is not None for row in said),
        sum(row["n_subscribers"] for row in said),
        len(expected),
    )
    assert (totals.messages, totals.attacked) == (len(said), attacked)
    assert totals.deliveries == (len(honest), len(made), sum(not row["known"] for row in honest))
    assert totals.deliveries.known == sum(row["known"] for row in honest)
    assert totals.repeated == sum(row["repeats"] for row in honest)
    published = [row for row in honest if row["publish_ns"] is not None]
    for name, rows, key in (
        ("by_second", published, lambda row: second(row["publish_ns"])),
        ("by_topic", honest, lambda row: row["topic"]),
    ):
        counted: Callable[[Row], int] = key
        assert getattr(totals, name) == add_up((counted(row), outcome(row)) for row in rows)
    assert totals.by_copies == add_up((row["copies"], ()) for row in made)
    for name in ("latency_ms", "direct_delay_ms", "stretch", "hops"):
        check_values(getattr(totals, name), (row[name] for row in honest))


@settings(max_examples=examples(60), deadline=None)
@given(message_rows, copy_rows)
def test_counts_of_copies_are_what_loops_say(said: list[Row], copies: list[Row]) -> None:
    totals = weigh(said, [], copies).totals
    publish_ns = {row["message_id"]: row["publish_ns"] for row in said if row["publish_ns"] is not None}
    handled = [row for row in copies if row["at_relay"] is not None and row["dst_node"] != ADVERSARY]

    def flags(row: Row) -> tuple[Any, ...]:
        return row["is_dup"], row["is_relay"], row["at_relay"]

    timed = [row for row in handled if row["message_id"] in publish_ns]
    assert totals.copies_by_second == add_up((second(publish_ns[row["message_id"]]), flags(row)) for row in timed)
    assert totals.copies_by_node == add_up((row["dst_node"], flags(row)) for row in handled)
    sent = [row for row in handled if row["src_node"] is not None]
    assert totals.copies_by_sender == add_up((row["src_node"], ()) for row in sent)


@settings(max_examples=examples(100), deadline=None)
@given(
    message_rows,
    st.lists(pairs, max_size=20, unique_by=lambda row: (row["message_id"], row["node"])),
    st.integers(1, 4),
)
def test_what_stands_out_is_what_a_plain_scan_finds(said: list[Row], expected: list[Row], most: int) -> None:
    """Tasks find it in their buckets, and what reads the tables of earlier versions in their parts."""
    expected = complete(expected, said)
    honest = [row for row in expected if row["node"] != ADVERSARY]
    timed = [row for row in honest if row["latency_ms"] is not None]
    slowest = sorted(timed, key=lambda row: (-row["latency_ms"], row["message_id"], row["node"]))[:most]
    missing = [row["message_id"] for row in honest if row["delivered_ns"] is None and row["known"]]
    halves = sorted((row["t50_ms"], row["message_id"]) for row in said if row["t50_ms"] is not None)
    typical = None
    if halves:
        half_ms, _ = halves[(len(halves) - 1) // 2]
        typical = min(message for each_ms, message in halves if each_ms == half_ms)
    delays_ns: dict[int, list[int]] = defaultdict(list)
    for row in timed:
        delays_ns[row["node"]].append(row["delivered_ns"] - row["publish_ns"])
    with (
        patch.object(standouts, "MOST_SLOWEST", most),
        written(said, expected, []) as sources,
        InProcess(2) as executor,
    ):
        folder = sources.messages.parent
        weighed = weigh_messages(executor, sources, folder / "weighed", BUCKETS).totals.standouts
        overlay = [SimpleNamespace(node=ADVERSARY, behaviour=SimpleNamespace(name="asker"))]
        run: Any = SimpleNamespace(tables=folder, overlay=overlay)
        read = read_standouts(run)
    assert (
        weighed
        == read
        == Standouts(
            slowest=tuple(
                SlowDelivery(
                    row["message_id"], row["publisher"], row["node"], row["latency_ms"], row["direct_delay_ms"]
                )
                for row in slowest
            ),
            undelivered=min(missing, default=None),
            typical=typical,
            by_node={node: NodeDelays(len(each), sum(each)) for node, each in sorted(delays_ns.items())},
        )
    )
    means_ms = {node: each.mean_ms for node, each in read.by_node.items()}
    assert means_ms == {node: pytest.approx(np.mean(each) / 1e6) for node, each in delays_ns.items()}


def test_equal_delays_are_in_the_order_of_messages_and_nodes() -> None:
    """Within a part, of which the first are chosen, and between parts."""
    nothing = {"publisher": 0, "direct_delay_ms": None, "publish_ns": 0, "known": True}
    keys = [(message, node) for message in range(4) for node in range(4)]
    rows = [
        nothing | {"message_id": message, "node": node, "latency_ms": 2.0, "delivered_ns": 2_000_000}
        for message, node in keys
    ]
    parts = [
        pa.Table.from_pylist(some, arrow_schema("deliveries")) for some in (rows[::-2], rows[-2::-2], rows[:1], [])
    ]
    for several in (parts, parts[::-1]):
        found = merge_standouts(map(find_standouts, several))
        assert [(each.message_id, each.node) for each in found.slowest] == sorted([keys[0], *keys])[:MOST_SLOWEST]
    alone = find_standouts(pa.concat_tables(parts[:2]))
    assert [(each.message_id, each.node) for each in alone.slowest] == keys[:MOST_SLOWEST]


@settings(max_examples=examples(60), deadline=None)
@given(message_rows)
def test_lags_of_publications_are_what_loops_say(said: list[Row]) -> None:
    found = weigh(said, [], [])
    lags: dict[int, list[int]] = defaultdict(list)
    for row in said:
        if row["scheduled_ns"] is not None and row["publish_ns"] is not None:
            lags[second(row["scheduled_ns"])].append(row["publish_ns"] - row["scheduled_ns"])
    every = [lag for those in lags.values() for lag in those]
    assert found.totals.lag_ms_max == {at: max(those) / 1e6 for at, those in lags.items()}
    assert (found.lag.samples, found.lag.max) == (len(every), max(every, default=0) / 1e6)
    assert found.lag.late == Late(sum(lag > LIMIT_NS for lag in every), 0)


@settings(max_examples=examples(60), deadline=None)
@given(message_rows, st.lists(pairs, max_size=12), copy_rows, st.booleans())
def test_delays_inside_hosts_are_what_loops_say(
    said: list[Row], expected: list[Row], copies: list[Row], may_wait: bool
) -> None:
    """The time until TCP lets the first copy leave is not the publisher's: from the first copy that it handed over, and
    from the publication if it sends copies on request."""
    expected = complete(expected, said)
    found = weigh(said, expected, copies, may_wait=may_wait)
    inside = []
    for row in expected:
        own = [
            copy
            for copy in copies
            if copy["message_id"] == row["message_id"] and copy["src_node"] == row["message_id"] >> 32
        ]
        handed_ns = [copy["log_send_ns"] for copy in own if copy["log_send_ns"] is not None]
        begun_ns = row["publish_ns"] if may_wait else min(handed_ns, default=None)
        left = min(own, key=lambda copy: [(copy[at] is None, copy[at] or 0) for at in LEAVING], default=None)
        waited_ms = 0.0
        if left is not None and left["log_send_ns"] is not None and begun_ns is not None:
            waited_ms = (left["log_send_ns"] + (left["d_tcp_ns"] or 0) - begun_ns) / 1e6
        if row["latency_ms"] is not None and row["wire_latency_ms"] is not None:
            inside.append(row["latency_ms"] - row["wire_latency_ms"] - waited_ms)
    negative = sum(row["latency_ms"] is not None and row["latency_ms"] < 0 for row in expected)
    assert (found.delays.tested, found.delays.failed) == (len(inside), negative + sum(each < 0 for each in inside))
    assert found.delays.worst == abs(min([*inside, 0.0]))
    assert (found.inside.samples, found.inside.max) == (len(inside), max(inside, default=0.0))
    assert found.inside.late == Late(sum(each * 1e6 > LIMIT_NS for each in inside), 0)
