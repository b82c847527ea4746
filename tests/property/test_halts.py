"""Frames that cuts and pauses explain, against a loop over all frames and changes."""

from typing import get_args

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metrics.changes import BREAK_NS, FOREVER_NS, GRACE_NS, PairChanges, Which
from metrics.checks.consistency import TOLD
from metrics.tables.halts import before_halts, count_drops, excuse_halted
from metrics.tables.schemas import arrow_schema
from topologies.timeline import Change

SECOND = 1_000_000_000
NODES = 4

nodes = st.integers(0, NODES - 1)
taps = st.tuples(st.none() | st.just(0), st.none() | st.integers(0, 60))
frames = st.tuples(nodes, nodes, st.integers(0, 60), st.integers(0, 60), st.integers(0, 3), st.integers(-1, 3), taps)


@st.composite
def some_halt(draw: st.DrawFn) -> Change:
    from_s = draw(st.integers(0, 30))
    ends = [tuple(sorted(draw(st.sets(nodes, min_size=1)))) for _ in range(2)]
    hosts = draw(st.sampled_from([{"sources": ends[0], "destinations": ends[1], "is_cut": True}, {"paused": ends[0]}]))
    to_s = draw(st.none() | st.integers(0, 20).map(lambda length: from_s + length))
    return Change(
        from_ns=from_s * SECOND,
        to_ns=None if to_s is None else to_s * SECOND,
        fault=0,
        **hosts,
    )


@given(st.lists(frames, min_size=1, max_size=8), st.lists(some_halt(), max_size=3), st.integers(0, 2))
def test_a_cut_or_a_pause_explains_frames_that_were_under_way_or_sent_until_connections_have_broken(
    rows: list[tuple[int, int, int, int, int, int, tuple[int | None, int | None]]], halts: list[Change], trip_s: int
):
    *columns, tapped = zip(*rows, strict=True)
    src, dst, sent_s, moving_s, off, read_off = (np.array(column) for column in columns)
    unread = pa.table({"src_node": src, "dst_node": dst, "log_send_ns": sent_s * SECOND, "off": off})
    for name, instants_s in zip(("tap_tx_ns", "tap_rx_ns"), zip(*tapped, strict=True), strict=True):
        unread = unread.append_column(name, pa.array([at_s and at_s * SECOND for at_s in instants_s], pa.int64()))
    unread = unread.cast(pa.schema([arrow_schema("hops").field(name) for name in unread.column_names]))
    trip_ns = np.full(len(rows), trip_s * SECOND)
    found = excuse_halted(unread, moving_s * SECOND, read_off, trip_ns, PairChanges(halts, NODES))
    for row, excused in zip(rows, found.tolist(), strict=True):
        source, destination, sent, moving, offset, latest, (left, came) = row
        explained = False
        for halt in halts:
            ends = {(a, b) for a in halt.sources for b in halt.destinations}
            begins = max(sent, moving, came or 0) * SECOND >= halt.from_ns - trip_s * SECOND - TOLD.ns
            begins |= left is not None and came is None and sent * SECOND >= halt.from_ns - BREAK_NS
            ended = halt.to_ns is not None and sent * SECOND >= halt.to_ns + BREAK_NS
            reached = ends & {(source, destination), (destination, source)} or {source, destination} & {*halt.paused}
            explained |= bool(reached) and begins and not ended
        assert excused == (explained and offset > latest)


@given(st.lists(st.tuples(nodes, st.integers(0, 40), st.integers(0, 9)), min_size=1), st.lists(some_halt(), max_size=3))
def test_a_pause_concerns_its_own_peers_until_a_second_after_it(
    rows: list[tuple[int, int, int]], halts: list[Change]
) -> None:
    node, from_s, length_s = (np.array(column) for column in zip(*rows, strict=True))
    span_ns = from_s * SECOND, (from_s + length_s) * SECOND
    found = PairChanges(halts, NODES).paused(node, *span_ns).tolist()
    for (own, since, length), paused in zip(rows, found, strict=True):
        assert paused == any(
            own in halt.paused
            and since * SECOND < (10**18 if halt.to_ns is None else halt.to_ns + GRACE_NS)
            and (since + length) * SECOND >= halt.from_ns
            for halt in halts
        )


@given(
    st.lists(st.tuples(nodes, nodes, st.integers(0, 90), st.sampled_from(["no_link", "queue_full"])), max_size=8),
    st.lists(some_halt(), max_size=3),
)
def test_frames_without_link_count_unless_a_cut_or_a_pause_breaks_the_connection(
    rows: list[tuple[int, int, int, str]], halts: list[Change]
) -> None:
    names = ("node", "peer", "ts_ns", "reason")
    drops = [dict(zip(names, (node, peer, at_s * SECOND, reason), strict=True)) for node, peer, at_s, reason in rows]
    kinds = (pa.int32(), pa.int32(), pa.int64(), pa.string())
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    found = count_drops(pa.Table.from_pylist(drops, schema), PairChanges(halts, NODES))
    expected: dict[str, int] = {}
    for node, peer, at_s, reason in rows:
        breaking = False
        for halt in halts:
            ends = {(a, b) for a in halt.sources for b in halt.destinations}
            reached = ends & {(node, peer), (peer, node)} or {node, peer} & {*halt.paused}
            ended = halt.to_ns is not None and at_s * SECOND >= halt.to_ns + BREAK_NS
            breaking |= bool(reached) and at_s * SECOND >= halt.from_ns and not ended
        if reason != "no_link" or not breaking:
            expected[reason] = expected.get(reason, 0) + 1
    assert found == expected


def test_links_by_the_traces_end_with_a_cut_and_begin_after_it() -> None:
    cut = PairChanges([Change(10, 0, 20, sources=(0,), destinations=(1,), is_cut=True)], NODES)
    spans = [(0, 1, 5, 90), (1, 0, 5, 90), (0, 1, 15, 90), (0, 1, 40, 90), (0, 2, 5, 90)]
    names = ("node", "peer", "from_ns", "to_ns")
    kept = before_halts(pa.Table.from_pylist([dict(zip(names, span, strict=True)) for span in spans]), cut)
    assert [tuple(row.values()) for row in kept.to_pylist()] == [
        (0, 1, 5, 10),
        (1, 0, 5, 10),
        (0, 1, 40, 90),
        (0, 2, 5, 90),
    ]


def test_links_are_compared_up_to_a_pause_of_either_end() -> None:
    pause = PairChanges([Change(10, 0, 20, paused=(1,))], NODES)
    pairs = np.array([0, 1, 2]), np.array([1, 3, 3])
    assert pause.first_halt_ns(*pairs, np.zeros(3, np.int64)).tolist() == [10, 10, FOREVER_NS]
    assert pause.first_halt_ns(*pairs, np.full(3, 29)).tolist() == [10, 10, FOREVER_NS]
    assert pause.first_halt_ns(*pairs, np.full(3, 30)).tolist() == [FOREVER_NS] * 3


def test_probes_and_packets_know_nothing_of_pauses() -> None:
    """Hosts answer, and links carry, while peers are paused."""
    pause, spans = PairChanges([Change(10, 0, 20, paused=(1,))], NODES), (np.array([12]), np.array([13]))
    met = {which: pause.meet(np.array([0]), np.array([1]), *spans, which=which).tolist() for which in get_args(Which)}
    assert met == {which: [which in ("settling", "breaking")] for which in get_args(Which)}
