"""Frames that cuts and pauses explain, against a loop over all frames and changes."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metrics.asked import BREAK_NS, PairChanges
from metrics.checks.consistency import TOLD
from metrics.tables.halts import excuse_halted
from metrics.tables.schemas import arrow_schema
from topologies.timeline import Change

SECOND = 1_000_000_000
NODES = 4

nodes = st.integers(0, NODES - 1)
frames = st.tuples(nodes, nodes, st.integers(0, 60), st.integers(0, 60), st.integers(0, 3), st.integers(-1, 3))


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
    rows: list[tuple[int, int, int, int, int, int]], halts: list[Change], trip_s: int
):
    src, dst, sent_s, moving_s, off, read_off = (np.array(column) for column in zip(*rows, strict=True))
    unread = pa.table({"src_node": src, "dst_node": dst, "log_send_ns": sent_s * SECOND, "off": off})
    unread = unread.cast(pa.schema([arrow_schema("hops").field(name) for name in unread.column_names]))
    trip_ns = np.full(len(rows), trip_s * SECOND)
    found = excuse_halted(unread, moving_s * SECOND, read_off, trip_ns, PairChanges(halts, NODES))
    for row, excused in zip(rows, found.tolist(), strict=True):
        source, destination, sent, moving, offset, latest = row
        explained = False
        for halt in halts:
            ends = {(a, b) for a in halt.sources for b in halt.destinations}
            begins = max(sent, moving) * SECOND >= halt.from_ns - trip_s * SECOND - TOLD.ns
            ended = halt.to_ns is not None and sent * SECOND >= halt.to_ns + BREAK_NS
            reached = ends & {(source, destination), (destination, source)} or {source, destination} & {*halt.paused}
            explained |= bool(reached) and begins and not ended
        assert excused == (explained and offset > latest)
