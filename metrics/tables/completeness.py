"""Compare the bytes and connections of the traces with the bytes and connections of the captures."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.checks.evidence import Matching, Outcome
from metrics.executors import Executor
from metrics.pcap.datagrams import PROTO_UDP
from metrics.pcap.schemas import CONNS
from metrics.storage import Place
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import find, numbers, of_whole_traces, says, valid
from metrics.tables.shares import Share, all_shares
from metrics.tables.tallies import add_outcomes
from metrics.tables.timespans import common_keys


class Completeness(NamedTuple):
    """What tasks find about all connections, as ``metrics.checks.evidence.Evidence`` has it."""

    coverage: Outcome
    connections: Matching


def weigh_streams(
    executor: Executor, staging: Place, incomplete: Sequence[int], cut: pa.Table, buckets: int
) -> Completeness:
    """Compare the connections of traces and captures, one bucket of them per task.

    Args:
        executor: runs the tasks.
        staging: has ``streams`` (``condensed.condense_streams``) and what was read of the captures.
        incomplete: nodes whose trace is missing or cut off.
        cut: ``hop_evidence.CUT``.
        buckets: how many there are.
    """
    found = executor.map(partial(_weigh_share, staging, incomplete, cut), all_shares(buckets))
    matchings = [each.connections for each in found]
    tested, only_traced, only_on_wire = (
        sum(getattr(each, name) for each in matchings) for name in ("tested", "only_traced", "only_on_wire")
    )
    return Completeness(add_outcomes([each.coverage for each in found]), Matching(tested, only_traced, only_on_wire))


def _weigh_share(staging: Place, incomplete: Sequence[int], cut: pa.Table, share: Share) -> Completeness:
    streams = read_bucket(staging / "streams", None, share)
    conns = read_bucket(staging / "wire" / "conns", CONNS, share, where=pc.field("proto") != PROTO_UDP)
    coverage = cover_streams(of_whole_traces(streams, incomplete), conns, cut)
    return Completeness(coverage, match_connections(streams, conns, cut))


def cover_streams(streams: pa.Table, conns: pa.Table, cut: pa.Table) -> Outcome:
    """Compare the stream bytes of the logs with the bytes at each vantage, by connection, direction and vantage.

    If a stream ended early, all its bytes up to the first frame that was lost must have been seen.

    Args:
        streams: ``condensed.condense_streams``.
        conns: ``metrics.pcap.schemas.CONNS``.
        cut: ``hop_evidence.CUT``.
    """
    named = streams.filter(pc.is_valid(streams["logged_bytes"])).group_by(["conn", "direction"])
    logged = named.aggregate([("incarnation", "max"), ("logged_bytes", "max"), ("end_bytes", "max")])
    alone = logged.filter(pc.and_(pc.equal(logged["incarnation_max"], 0), pc.is_valid(logged["end_bytes_max"])))
    alone = alone.combine_chunks()
    places = [_places(alone, conns["conn"], side) for side in ("orig", "resp")]
    least = pc.coalesce(cut["off"].take(_stream_places(cut, alone)), alone["end_bytes_max"])
    lost = pc.subtract(alone["end_bytes_max"], least)
    lost_of_conn = np.add(*(numbers(lost.take(place)) for place in places))
    tested = failed = worst = total = 0
    for side, place in zip(("orig", "resp"), places, strict=True):
        known = valid(place)
        row = place.drop_null()
        end, first_lost, of_logs = (
            numbers(column.take(row)) for column in (alone["end_bytes_max"], least, alone["logged_bytes_max"])
        )
        seen, missed = (numbers(conns[name])[known] for name in (f"{side}_bytes", "missed_bytes"))
        errors = (np.abs(of_logs - end), seen - end, first_lost - seen, missed - lost_of_conn[known])
        error = np.maximum.reduce([*errors, np.zeros(len(end), np.int64)])
        tested, failed = tested + len(error), failed + int((error > 0).sum())
        worst, total = max(worst, int(error.max(initial=0))), total + int(seen.sum())
    return Outcome(tested, failed, worst, total)


def match_connections(streams: pa.Table, conns: pa.Table, cut: pa.Table) -> Matching:
    """Compare the connections with frames in the traces with the connections with stream bytes in the captures.

    A connection need not be in the captures if all its frames may be lost with a node.

    Args:
        streams: see ``cover_streams``.
        conns: likewise.
        cut: likewise.
    """
    has_bytes = pc.greater(pc.add(conns["orig_bytes"], conns["resp_bytes"]), 0)
    logged = streams.filter(pc.is_valid(streams["logged_bytes"]))
    begun = cut.filter(pc.equal(cut["off"], 0))
    lost = valid(_stream_places(begun, logged))
    traced, surely_sent = (set(rows["conn"].to_pylist()) for rows in (logged, logged.filter(pa.array(~lost))))
    seen = set(conns.filter(has_bytes)["conn"].to_pylist())
    return Matching(len(traced | seen), only_traced=len(surely_sent - seen), only_on_wire=len(seen - traced))


def _places(streams: pa.Table, conn: pa.ChunkedArray, side: str) -> pa.Array:
    """Return where the stream of each connection's side is in ``streams``; null if it is not there."""
    rows = np.flatnonzero(says(streams["direction"], side))
    place = pc.index_in(conn, streams["conn"].take(pa.array(rows)).combine_chunks())
    return pa.array(rows).take(place.combine_chunks() if isinstance(place, pa.ChunkedArray) else place)


def _stream_places(cut: pa.Table, streams: pa.Table) -> pa.Array:
    """Return where each stream is among the streams that ended early, of first connections of a name, or null."""
    keys = common_keys(*([rows["conn"], rows["direction"]] for rows in (cut, streams)))
    there, wanted = (pa.array(key) for key in keys)
    return find([pc.if_else(pc.equal(cut["incarnation"], 0), there, pa.scalar(None, there.type))], [wanted])
