"""Hops: one transmission of a frame between two nodes, from both logs and both taps.

A kernel that Spark runs on shares of the connections. A frame is known by its stream (connection, incarnation,
direction) and its offset there; its sightings are numbered by that key, and every column is one scatter by number.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from metrics.pcap.flows import factorise
from metrics.pcap.frames import DIRECTIONS
from metrics.pcap.schemas import CONNS
from metrics.pcap.schemas import FRAMES as TAPS
from metrics.pcap.walk import Bools, Ints
from metrics.tables.columns import Groups, conform, find, find_asked, holds, numbers, says, valid
from metrics.tables.schemas import arrow_schema
from metrics.tables.shares import Share
from metrics.tables.traces import EVENTS, locate
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
    """What hops are made of: Parquet as staged, and what is known of the run."""

    frames: Path  # ``traces.FRAMES``
    taps: Path  # ``metrics.pcap.schemas.FRAMES``
    conns: Path  # ``metrics.pcap.schemas.CONNS``
    events: Path  # ``traces.EVENTS``
    published: Path  # message_id and topics of every message
    pairs: Path  # what was asked of every directed pair, for ``find_asked``: delay_ms, jitter_ms
    nodes_by_host: Sequence[int]  # the node on each host
    starts: Mapping[str, Sequence[int]]  # of reused addresses and ports: when each incarnation of the connection began

    @property
    def rows(self) -> int:
        """How many sightings there are."""
        return sum(
            ds.dataset(*each, format="parquet").count_rows() for each in ((self.frames, LOGS), (self.taps, TAPS))
        )


def build_hops(sources: HopSources, share: Share) -> pa.Table:
    """The rows of the ``hops`` table for a share of the connections."""
    logged = locate(_read(sources.frames, LOGS, _LOGGED, share))
    seen = _read(sources.taps, TAPS, _SEEN, share)
    both = pa.concat_tables([each.select(["conn", "direction", "off"]) for each in (logged, seen)])
    both = both.unify_dictionaries().combine_chunks()
    conn, names = _codes(both["conn"])
    incarnation = np.concatenate(_incarnations(sources, names, conn, logged, seen))
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
    columns |= _delays(columns) | _asked(sources.pairs, columns) | _repeats(sources.events, columns)
    columns["topics"] = _topics(sources.published, columns["message_id"])
    return conform(columns, HOPS)


# ---------------------------------------------------------------------------------------------------- sightings


def _read(path: Path, schema: pa.Schema, names: list[str], share: Share) -> pa.Table:
    """The rows of a share; columns that say the same again and again are dictionaries."""
    repeated = [name for name in _REPEATED if name in names]
    fields = [
        pa.field(name, pa.dictionary(pa.int32(), pa.string()) if name in repeated else schema.field(name).type)
        for name in names
    ]
    wanted = pa.schema(fields)
    files = ds.dataset(path, schema=wanted, format=ds.ParquetFileFormat(dictionary_columns=repeated))
    batches = (batch for batch in files.to_batches(batch_size=1 << 17) if len(batch))
    return pa.Table.from_batches([_shared(batch, share) for batch in batches], wanted)


def _shared(rows: pa.RecordBatch, share: Share) -> pa.RecordBatch:
    """The rows on the connections of a share. Two hosts' connections are all in the same one (``_firsts``)."""
    conns = rows["conn"]
    mine = [name is not None and _checksum(name) % share.count == share.number for name in conns.dictionary.to_pylist()]
    return rows.filter(pc.fill_null(pa.array(mine, pa.bool_()).take(conns.indices), fill_value=False))


def _checksum(conn: str) -> int:
    """Of the two addresses of a connection, whichever of them opened it."""
    ends = sorted(end.rpartition(":")[0] for end in conn.split("-"))
    return zlib.crc32("-".join(ends).encode())


def _codes(strings: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """A dictionary column as numbers and what they stand for."""
    [whole] = strings.chunks or [pa.array([], strings.type)]
    return whole.indices.to_numpy().astype(np.int64), whole.dictionary


def _incarnations(
    sources: HopSources, names: pa.Array, conn: Ints, logged: pa.Table, seen: pa.Table
) -> tuple[Ints, Ints]:
    """Which of the connections of its name each sighting belongs to: those of the logs, and those of the taps."""
    of_logs, of_taps = np.zeros(len(logged), np.int64), np.zeros(len(seen), np.int64)
    mine, ts_ns = conn[: len(logged)], logged["ts_ns"].to_numpy()
    for number, name in enumerate(names.to_pylist()):
        if name in sources.starts:
            rows = np.flatnonzero(mine == number)
            begun = np.searchsorted(np.array(sources.starts[name]), ts_ns[rows], "right")
            of_logs[rows] = np.maximum(begun - 1, 0)
    if sources.starts:
        numbers = _numbers_by_uid(sources)
        uid, uids = _codes(seen.select(["uid"]).unify_dictionaries().combine_chunks()["uid"])
        of_taps[:] = np.array([numbers.get(each, 0) for each in uids.to_pylist()], np.int64)[uid]
    return of_logs, of_taps


def _numbers_by_uid(sources: HopSources) -> dict[str, int]:
    """Of the connections that reused a name: each one's number, in the order in which the captures saw them begin."""
    rows = pq.read_table(sources.conns, columns=["conn", "uid", "ts_ns"], schema=CONNS)
    rows = rows.filter(pc.is_in(rows["conn"], pa.array(list(sources.starts), pa.string())))
    begun = rows.group_by(["conn", "uid"]).aggregate([("ts_ns", "min")])
    numbers, seen_of = {}, dict.fromkeys(sources.starts, 0)
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
    host = seen["vantage_host"].to_numpy()
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
    """The logs' word where there is one, the captures' otherwise."""
    common = {name: pc.coalesce(of_logs[name], of_taps[name]) for name in of_logs.keys() & of_taps.keys()}
    return of_logs | of_taps | common


# ---------------------------------------------------------------------------------------------------- what follows


def _delays(hops: dict[str, pa.Array]) -> dict[str, pa.Array]:
    instants = ("log_send_ns", "tap_tx_ns", "tap_rx_ns", "log_recv_ns")
    names = ("d_sndbuf_ns", "d_wire_ns", "d_rcv_ns")
    parts = zip(names, pairwise(instants), strict=True)
    return {name: pc.subtract(hops[to], hops[since]) for name, (since, to) in parts}


def _asked(pairs: Path, hops: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The delay and jitter asked for between a hop's nodes."""
    ends = hops["src_node"], hops["dst_node"]
    return {f"asked_{name}": find_asked(pairs, name, *ends) for name in ("delay_ms", "jitter_ms")}


def _topics(published: Path, identifiers: pa.Array) -> pa.Array:
    known = pq.read_table(published, columns=["message_id", "topics"])
    return known["topics"].combine_chunks().take(find([known["message_id"]], [identifiers]))


def _repeats(events: Path, hops: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Of each copy of a message whether the node had it already, and whether the node takes it only to pass it on.

    The first copy at a node came from the neighbour that the node's first ``deliver`` or ``relay`` of it names. A copy
    that a node reads on a link that it has closed, or refuses, leads to no event that names its sender.
    """
    said = ["event", "node", "peer", "ts_ns", "message_id"]
    about_copies = pc.field("event").isin(["deliver", "relay", "duplicate"])
    known = ds.dataset(events, schema=EVENTS, format="parquet").to_table(columns=said, filter=about_copies)
    key = ("node", "peer", "message_id")
    handled = pc.is_valid(
        find([known[name] for name in key], [hops[name] for name in ("dst_node", "src_node", key[2])])
    )
    taken = known.filter(pc.not_equal(known["event"], "duplicate")).sort_by([("ts_ns", "ascending")]).combine_chunks()
    own = taken.filter(pc.and_(pc.is_null(taken["peer"]), pc.equal(taken["event"], "deliver")))
    taken = taken.filter(pc.is_valid(taken["peer"]))
    first = taken.take(find([taken["node"], taken["message_id"]], [hops["dst_node"], hops["message_id"]]))
    is_copy = pc.and_(pc.equal(hops["kind"], Data.kind), pc.is_valid(hops["log_recv_ns"]))
    by_it = pc.and_(
        pc.equal(hops["src_node"], first["peer"].cast(pa.int64())), pc.less_equal(hops["log_recv_ns"], first["ts_ns"])
    )
    is_first = pa.array(_firsts(hops, holds(pc.and_(by_it, is_copy))))
    relayed = pa.array(says(first["event"], "relay"))
    returned = pa.array(holds(pc.is_null(first["event"])) & _returned(hops, own))
    nothing = pa.scalar(None, pa.bool_())
    return {
        "is_dup": pc.if_else(is_copy, pc.invert(is_first), nothing),
        "is_relay": pc.if_else(is_copy, pc.and_(is_first, relayed), nothing),
        "at_relay": pc.if_else(pc.and_(is_copy, handled), pc.or_(relayed, returned), nothing),
    }


def _returned(hops: dict[str, pa.Array], delivered: pa.Table) -> Bools:
    """Which messages came back to a publisher that did not subscribe.

    Args:
        hops: their message_id and dst_node.
        delivered: node and message_id of the publishers' own deliveries.
    """
    node, message = hops["dst_node"], hops["message_id"]
    came_back = holds(pc.equal(pc.shift_right(message.cast(pa.int64()), 32), node.cast(pa.int64())))
    rows = np.flatnonzero(came_back)
    place = find(
        [delivered["node"], delivered["message_id"]], [node.take(pa.array(rows)), message.take(pa.array(rows))]
    )
    came_back[rows] = ~valid(place)
    return came_back


def _firsts(hops: dict[str, pa.Array], candidates: Bools) -> Bools:
    """Of the candidates for a message's first copy at a node the one that the node read first.

    A node that reads several frames at once stamps them alike, and takes them in the order of the stream. That order
    decides: the offset, and between streams, of which no order is known, their names.
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
