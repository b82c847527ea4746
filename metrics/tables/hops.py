"""Make hops: one row per transmission of a frame between two nodes, from both logs and both taps.

This is a kernel for shares of the connections. A frame is known by its stream (connection, incarnation, direction) and
its offset in it. Its sightings are numbered by that key, and every column is one scatter by number.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from metrics.asked import find_asked
from metrics.pcap.flows import factorise
from metrics.pcap.frames import DIRECTIONS
from metrics.pcap.schemas import CONNS
from metrics.pcap.schemas import FRAMES as TAPS
from metrics.pcap.walk import Bools, Ints
from metrics.storage import Place
from metrics.tables import shares
from metrics.tables.buckets import addresses_of, bucket_dataset, read_bucket
from metrics.tables.columns import Groups, conform, find, holds, numbers, says
from metrics.tables.published import CONTENTS
from metrics.tables.schemas import arrow_schema
from metrics.tables.shares import Share
from metrics.tables.timespans import FOREVER
from metrics.tables.traces import BEGINNINGS, HANDLED, locate
from metrics.tables.traces import FRAMES as LOGS
from peer.core.frames import Data

HOPS: Final = arrow_schema("hops")
_DIRECTIONS: Final = pa.array(DIRECTIONS)

_LOGGED = ["conn", "direction", "off", "event", "node", "peer", "kind", "ts_ns", "message_id", "len_bytes"]
_SEEN = ["conn", "direction", "off", "uid", "vantage_host", "tap", "len_bytes", "kind", "message_id"]
_SEEN += ["t_first_ns", "t_last_ns", "n_retx", "n_seconds"]
_REPEATED = ["conn", "direction", "event", "tap", "uid"]


@dataclass(frozen=True)
class HopSources:
    """The sources of hops: staged Parquet in buckets of connections, and what is known of the run."""

    frames: Place  # ``traces.FRAMES``
    beginnings: Place  # ``traces.BEGINNINGS``
    taps: Place  # ``metrics.pcap.schemas.FRAMES``
    conns: Place  # ``metrics.pcap.schemas.CONNS``
    handled: Place  # ``traces.HANDLED``
    contents: Place  # ``published.CONTENTS`` of the messages that have frames in the bucket
    pairs: Place  # what was asked of every directed pair, for ``find_asked`` and ``tcp_waits``
    nodes_by_host: Sequence[int]  # the node on each host


def plan_pieces(sources: HopSources, share: Share) -> list[pa.Array | None]:
    """Return the names of the connections whose hops are made at a time: None = all of the share.

    All connections of two hosts are in one piece. A piece has at most ``PIECE_ROWS`` sightings, or two hosts.
    """
    staged = [bucket_dataset(path, schema, share) for path, schema in ((sources.frames, LOGS), (sources.taps, TAPS))]
    if sum(each.count_rows() for each in staged) <= shares.PIECE_ROWS:
        return [None]
    counts: Counter[str] = Counter()
    for each in staged:
        for batch in each.to_batches(columns=["conn"]):
            counts.update({pair["values"]: pair["counts"] for pair in pc.value_counts(batch["conn"]).to_pylist()})
    by_pair: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(name for name in counts if name is not None):
        by_pair.setdefault(tuple(sorted(addresses_of(name))), []).append(name)
    pieces: list[list[str]] = [[]]
    rows = 0
    for names in by_pair.values():
        size = sum(counts[name] for name in names)
        if rows and rows + size > shares.PIECE_ROWS:
            pieces, rows = [*pieces, []], 0
        pieces[-1] += names
        rows += size
    return [pa.array(names, pa.string()) for names in pieces]


def build_hops(sources: HopSources, share: Share, only: pa.Array | None = None) -> pa.Table:
    """Return the rows of the ``hops`` table for a share of the connections; there are as many shares as buckets.

    Args:
        sources: what hops are made of.
        share: a share of the connections.
        only: one of ``plan_pieces``.
    """
    logged = locate(_read(sources.frames, LOGS, _LOGGED, share, only))
    seen = _read(sources.taps, TAPS, _SEEN, share, only)
    both = pa.concat_tables([each.select(["conn", "direction", "off"]) for each in (logged, seen)])
    both = both.unify_dictionaries().combine_chunks()
    conn, names = _codes(both["conn"])
    incarnation = np.concatenate(_incarnations(sources, share, names, conn, logged, seen))
    direction = pc.index_in(both["direction"].cast(pa.string()), _DIRECTIONS).fill_null(0).to_numpy().astype(np.int64)
    off = both["off"].to_numpy()
    frame, count = factorise(conn, incarnation, direction, off)
    one = np.empty(count, np.int64)
    one[frame] = np.arange(len(frame))  # any sighting of each frame
    columns = {
        "conn": names.take(pa.array(conn[one])),
        "incarnation": pa.array(incarnation[one]),
        "direction": _DIRECTIONS.take(pa.array(direction[one])),
        "off": pa.array(off[one]),
    }
    columns |= _merge(
        _of_logs(logged, Groups(frame[: len(logged)], count)),
        _of_taps(seen, Groups(frame[len(logged) :], count), sources.nodes_by_host),
    )
    where = None if only is None else pc.field("message_id").isin(columns["message_id"].unique().drop_null())
    columns |= _delays(columns) | _asked(sources.pairs, columns) | _repeats(sources.handled, share, where, columns)
    columns["topics"] = _topics(sources.contents, share, where, columns["message_id"])
    return conform(columns, HOPS)


# ---------------------------------------------------------------------------------------------------- sightings


def _read(path: Place, schema: pa.Schema, names: list[str], share: Share, only: pa.Array | None) -> pa.Table:
    """Read the rows of a share, or of some connections; columns that repeat the same values become dictionaries."""
    repeated = [name for name in _REPEATED if name in names]
    fields = [
        pa.field(name, pa.dictionary(pa.int32(), pa.string()) if name in repeated else schema.field(name).type)
        for name in names
    ]
    wanted = pa.schema(fields)
    form = ds.ParquetFileFormat(dictionary_columns=repeated)
    batches = bucket_dataset(path, wanted, share, form).to_batches(batch_size=1 << 17)
    chosen = (batch if only is None else batch.filter(_among(batch["conn"], only)) for batch in batches)
    return pa.Table.from_batches([batch for batch in chosen if len(batch)], wanted).filter(pc.field("conn").is_valid())


def _among(conn: pa.DictionaryArray, names: pa.Array) -> pa.Array:
    return pc.is_in(conn.dictionary, names).take(conn.indices)


def _codes(strings: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Return a dictionary column as numbers, and the values that the numbers stand for."""
    [whole] = strings.chunks or [pa.array([], strings.type)]
    return whole.indices.to_numpy().astype(np.int64), whole.dictionary


def _incarnations(
    sources: HopSources, share: Share, names: pa.Array, conn: Ints, logged: pa.Table, seen: pa.Table
) -> tuple[Ints, Ints]:
    """Return to which connection of its name each sighting belongs, first for the logs, then for the taps."""
    of_logs, of_taps = np.zeros(len(logged), np.int64), np.zeros(len(seen), np.int64)
    starts = find_starts(read_bucket(sources.beginnings, BEGINNINGS, share))
    mine, ts_ns = conn[: len(logged)], logged["ts_ns"].to_numpy()
    for number, name in enumerate(names.to_pylist()):
        if name in starts:
            rows = np.flatnonzero(mine == number)
            begun = np.searchsorted(np.array(starts[name]), ts_ns[rows], "right")
            of_logs[rows] = np.maximum(begun - 1, 0)
    if starts:
        numbers = _numbers_by_uid(read_bucket(sources.conns, CONNS, share, ["conn", "uid", "ts_ns"]), list(starts))
        uid, uids = _codes(seen.select(["uid"]).unify_dictionaries().combine_chunks()["uid"])
        of_taps[:] = np.array([numbers.get(each, 0) for each in uids.to_pylist()], np.int64)[uid]
    return of_logs, of_taps


def find_starts(beginnings: pa.Table) -> dict[str, list[int]]:
    """Return when the incarnations began of connections that reused addresses and ports, rising.

    Every incarnation begins with a frame at offset 0 in each direction; its start is the earlier of the two.

    Args:
        beginnings: ``traces.BEGINNINGS`` of whole connections.
    """
    begun = beginnings.group_by(["conn", "direction"]).aggregate([("ts_ns", "list")])
    found: dict[str, list[int]] = {}
    for row in begun.filter(pc.greater(pc.list_value_length(begun["ts_ns_list"]), 1)).to_pylist():
        found.setdefault(row["conn"], [])
    again = pc.is_in(begun["conn"], pa.array(list(found), pa.string()))
    for row in begun.filter(again).to_pylist():
        both = zip_longest(found[row["conn"]], sorted(row["ts_ns_list"]), fillvalue=FOREVER)
        found[row["conn"]] = [min(pair) for pair in both]
    return found


def _numbers_by_uid(conns: pa.Table, reused: list[str]) -> dict[str, int]:
    """Number the connections that reused a name, in the order in which they begin in the captures."""
    rows = conns.filter(pc.is_in(conns["conn"], pa.array(reused, pa.string())))
    begun = rows.group_by(["conn", "uid"]).aggregate([("ts_ns", "min")])
    numbers, seen_of = {}, dict.fromkeys(reused, 0)
    for row in begun.sort_by([("ts_ns_min", "ascending")]).to_pylist():
        numbers[row["uid"]] = seen_of[row["conn"]]
        seen_of[row["conn"]] += 1
    return numbers


def _of_logs(logged: pa.Table, frames: Groups) -> dict[str, pa.Array]:
    sent = says(logged["event"], "send")
    return {
        "log_send_ns": frames.most(logged["ts_ns"], sent),
        "log_recv_ns": frames.least(logged["ts_ns"], ~sent),
        "src_node": frames.most(pc.if_else(pa.array(sent), logged["node"], logged["peer"])),
        "dst_node": frames.most(pc.if_else(pa.array(sent), logged["peer"], logged["node"])),
        **{name: frames.most(logged[name]) for name in ("len_bytes", "kind", "message_id")},
    }


def _of_taps(seen: pa.Table, frames: Groups, nodes_by_host: Sequence[int]) -> dict[str, pa.Array]:
    tx, rx = says(seen["tap"], "tx"), says(seen["tap"], "rx")
    host = numbers(seen["vantage_host"], -1)
    known = (host >= 0) & (host < len(nodes_by_host))
    node = pa.array(np.array([*nodes_by_host, -1], np.int64)[np.where(known, host, -1)], mask=~known)
    return {
        "tap_tx_ns": frames.least(seen["t_first_ns"], tx),
        "tap_tx_last_ns": frames.least(seen["t_last_ns"], tx),
        "tap_rx_ns": frames.least(seen["t_last_ns"], rx),
        "n_retx": frames.most(seen["n_retx"], tx),
        "n_seconds": frames.most(seen["n_seconds"], tx),
        "src_node": frames.most(node, tx),
        "dst_node": frames.most(node, rx),
        **{name: frames.most(seen[name]) for name in ("len_bytes", "kind", "message_id")},
    }


def _merge(of_logs: dict[str, pa.Array], of_taps: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Take the values of the logs where there are any, otherwise the values of the captures."""
    common = {name: pc.coalesce(of_logs[name], of_taps[name]) for name in of_logs.keys() & of_taps.keys()}
    return of_logs | of_taps | common


# ---------------------------------------------------------------------------------------------------- what follows


def _delays(hops: dict[str, pa.Array]) -> dict[str, pa.Array]:
    instants = ("log_send_ns", "tap_tx_ns", "tap_rx_ns", "log_recv_ns")
    names = ("d_sndbuf_ns", "d_wire_ns", "d_rcv_ns")
    parts = zip(names, pairwise(instants), strict=True)
    return {name: pc.subtract(hops[to], hops[since]) for name, (since, to) in parts}


def _asked(pairs: Place, hops: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the delay and jitter asked for between a hop's nodes when the frame left."""
    ends = hops["src_node"], hops["dst_node"]
    at_ns = pc.coalesce(hops["tap_tx_ns"], hops["log_send_ns"])
    return {f"asked_{name}": find_asked(pairs, name, *ends, at_ns) for name in ("delay_ms", "jitter_ms")}


def _topics(contents: Place, share: Share, where: pc.Expression | None, identifiers: pa.Array) -> pa.Array:
    known = read_bucket(contents, CONTENTS, share, ["message_id", "topics"], where)
    return known["topics"].combine_chunks().take(find([known["message_id"]], [identifiers]))


def _repeats(
    handled: Place, share: Share, where: pc.Expression | None, hops: dict[str, pa.Array]
) -> dict[str, pa.Array]:
    """Return for each copy of a message whether the node had it already, and whether the node only relays it.

    The first copy at a node came from the neighbour that the node's first ``deliver`` or ``relay`` of it names. A copy
    that a node reads on a link that it has closed, or refuses, leads to no event that names its sender.
    """
    known = read_bucket(handled, HANDLED, share, where=where)
    ends = ("dst_node", "src_node", "message_id")
    place = find([known[name] for name in ("node", "peer", "message_id")], [hops[name] for name in ends])
    told = known.take(place)
    is_copy = pc.and_(pc.equal(hops["kind"], Data.kind), pc.is_valid(hops["log_recv_ns"]))
    by_it = pc.and_(
        pc.equal(hops["src_node"], told["first_peer"].cast(pa.int64())),
        pc.less_equal(hops["log_recv_ns"], told["first_ns"]),
    )
    is_first = pa.array(_firsts(hops, holds(pc.and_(by_it, is_copy))))
    relayed = pa.array(says(told["first_event"], "relay"))
    own = pc.equal(pc.shift_right(hops["message_id"].cast(pa.int64()), 32), hops["dst_node"].cast(pa.int64()))
    returned = holds(pc.is_null(told["first_event"])) & holds(own) & ~holds(told["is_own"])
    nothing = pa.scalar(None, pa.bool_())
    return {
        "is_dup": pc.if_else(is_copy, pc.invert(is_first), nothing),
        "is_relay": pc.if_else(is_copy, pc.and_(is_first, relayed), nothing),
        "at_relay": pc.if_else(pc.and_(is_copy, pc.is_valid(place)), pc.or_(relayed, pa.array(returned)), nothing),
    }


def _firsts(hops: dict[str, pa.Array], candidates: Bools) -> Bools:
    """Return which of the candidates for a message's first copy at a node the node read first.

    A node that reads several frames at once gives them the same timestamp, and handles them in the order of the stream.
    That order decides: the offset, and between streams, for which no order is known, their names.
    """
    rows = np.flatnonzero(candidates)
    group, count = factorise(*(numbers(hops[name].take(pa.array(rows))) for name in ("dst_node", "message_id")))
    contested = (np.bincount(group, minlength=count) > 1)[group]
    is_first = candidates.copy()
    is_first[rows[contested]] = False
    rows, group = rows[contested], group[contested]
    names = ["log_recv_ns", "off", "conn", "incarnation", "direction"]
    keys = pa.table({name: hops[name].take(pa.array(rows)) for name in names})
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names]).to_numpy()
    _, earliest = np.unique(group[order], return_index=True)
    is_first[rows[order[earliest]]] = True
    return is_first
