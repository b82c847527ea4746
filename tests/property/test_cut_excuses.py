"""Frames that cuts explain, against a loop over all frames and cuts."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metrics.checks.consistency import TOLD
from metrics.tables.cuts import SILENCE, excuse_cut
from metrics.tables.schemas import arrow_schema
from topologies.timeline import Change

SECOND = 1_000_000_000
NODES = 4

nodes = st.integers(0, NODES - 1)
frames = st.tuples(nodes, nodes, st.integers(0, 60), st.integers(0, 60), st.integers(0, 3), st.integers(-1, 3))


@st.composite
def some_cut(draw: st.DrawFn) -> Change:
    from_s = draw(st.integers(0, 30))
    ends = [tuple(sorted(draw(st.sets(nodes, min_size=1)))) for _ in range(2)]
    to_s = draw(st.none() | st.integers(0, 20).map(lambda length: from_s + length))
    return Change(
        from_ns=from_s * SECOND,
        to_ns=None if to_s is None else to_s * SECOND,
        fault=0,
        sources=ends[0],
        destinations=ends[1],
        is_cut=True,
    )


@given(st.lists(frames, min_size=1, max_size=8), st.lists(some_cut(), max_size=3), st.integers(0, 2))
def test_a_cut_explains_frames_that_were_under_way_or_sent_until_connections_have_broken(
    rows: list[tuple[int, int, int, int, int, int]], cuts: list[Change], trip_s: int
):
    src, dst, sent_s, moving_s, off, read_off = (np.array(column) for column in zip(*rows, strict=True))
    unread = pa.table({"src_node": src, "dst_node": dst, "log_send_ns": sent_s * SECOND, "off": off})
    unread = unread.cast(pa.schema([arrow_schema("hops").field(name) for name in unread.column_names]))
    found = excuse_cut(unread, moving_s * SECOND, read_off, np.full(len(rows), trip_s * SECOND), cuts)
    for row, excused in zip(rows, found.tolist(), strict=True):
        source, destination, sent, moving, offset, latest = row
        explained = False
        for cut in cuts:
            ends = {(a, b) for a in cut.sources for b in cut.destinations}
            begins = max(sent, moving) * SECOND >= cut.from_ns - trip_s * SECOND - TOLD.ns
            ended = cut.to_ns is not None and sent * SECOND > cut.to_ns + SILENCE.ns
            explained |= bool(ends & {(source, destination), (destination, source)}) and begins and not ended
        assert excused == (explained and offset > latest)
