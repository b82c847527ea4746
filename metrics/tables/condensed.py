"""Condense what later tables need of the hops while a task has a share's rows in memory.

The result has a few rows per stream, link or second, so that joins cost little.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.schemas import SPANS
from metrics.pcap.walk import Ints
from metrics.storage import Place
from metrics.tables.buckets import divide, of_messages, of_seconds, read_bucket
from metrics.tables.columns import Column, Groups, find, group_rows, numbers, valid
from metrics.tables.hops import HOPS, HopSources, build_hops, plan_pieces
from metrics.tables.overhead import frame_classes
from metrics.tables.published import CONTENTS
from metrics.tables.shares import Rows, Share, Tables
from metrics.tables.tcp_waits import tcp_waits
from metrics.tables.timespans import SECOND_NS
from peer.core.frames import Bye, Data, Hello
from peer.wire import HEADER_BYTES

INSTANTS: Final = {"log": "log_send_ns", "tx": "tap_tx_ns", "rx": "tap_rx_ns", "read": "log_recv_ns"}


_TRANSMITTED = ("message_id", "src_node", "dst_node", *INSTANTS.values(), "is_dup", "is_relay", "at_relay")
TRANSMISSIONS: Final = pa.schema([*(HOPS.field(name) for name in _TRANSMITTED), ("d_tcp_ns", pa.int64())])
"""What deliveries need of a copy of a message, and what is counted of copies. ``tcp_waits`` defines ``d_tcp_ns``."""

HOST_DELAYS: Final = pa.schema([HOPS.field(name) for name in ("log_send_ns", "d_sndbuf_ns", "d_rcv_ns")])
"""How long a frame stayed inside the hosts."""


def build_and_condense(sources: HopSources, spans: Place, zero_ns: int, share: Share) -> Iterator[Tables]:
    """Make a share of ``hops``, and condense it into ``streams``, ``carried`` and ``arrivals``.

    See ``condense_streams``, ``condense_topics`` and ``condense_arrivals``. It also yields ``TRANSMISSIONS`` in buckets
    of messages, and ``HOST_DELAYS`` and ``classes`` (``overhead.frame_classes``) in buckets of seconds, in as many
    buckets as there are shares.

    Args:
        sources: what hops are made of.
        spans: ``metrics.pcap.schemas.SPANS``, in buckets of connections.
        zero_ns: the instant from which seconds are counted.
        share: a share of the connections.

    Yields:
        The tables of each of ``hops.plan_pieces``.
    """
    for only in plan_pieces(sources, share):
        yield _condense_piece(sources, spans, zero_ns, share, only)


def _condense_piece(
    sources: HopSources, spans: Place, zero_ns: int, share: Share, only: pa.Array | None
) -> dict[str, Rows]:
    rows = build_hops(sources, share, only)
    data = pc.fill_null(pc.equal(rows["kind"], Data.kind), fill_value=False)
    of_message, of_conn = None, None
    if only is not None:
        of_message = pc.field("message_id").isin(rows["message_id"].unique().drop_null())
        of_conn = pc.field("conn").isin(only)
    contents = read_bucket(sources.contents, CONTENTS, share, ["message_id", "payload_bytes"], of_message)
    left = add_payload_bytes(rows.filter(pc.is_valid(rows["tap_tx_ns"])), contents)
    whole = pc.less_equal(left["n_seconds"], 1)
    sent, split = condense_bytes(left.filter(whole), zero_ns), describe_bytes(left.filter(pc.invert(whole)))
    classes = frame_classes(sent, split, read_bucket(spans, SPANS, share, where=of_conn))
    transmissions = rows.append_column("d_tcp_ns", pa.array(tcp_waits(rows, sources.pairs))).filter(data)
    transmissions = transmissions.select(TRANSMISSIONS.names)
    by_message = divide(transmissions, of_messages(transmissions["message_id"], share.count), share.count)
    delays = rows.filter(pc.is_valid(rows["log_send_ns"])).select(HOST_DELAYS.names)
    by_second = divide(delays, of_seconds(delays["log_send_ns"], zero_ns, share.count), share.count)
    return {
        "hops": rows,
        "host_delays": by_second,
        "transmissions": by_message,
        "streams": condense_streams(rows),
        "carried": condense_topics(rows.filter(pc.and_(data, pc.is_valid(rows["tap_tx_ns"])))),
        "arrivals": condense_arrivals(rows.filter(pc.and_(data, pc.is_valid(rows["tap_rx_ns"])))),
        "classes": divide(classes, of_seconds(classes["second_ns"], zero_ns, share.count), share.count),
    }


def condense_streams(hops: pa.Table) -> pa.Table:
    """Condense each direction of a connection: nodes, ``Hello`` and ``Bye``, frames at the sender's tap, last frame.

    Columns: conn, incarnation, direction, src_node, dst_node, n_frames, last_send_ns, last_recv_ns, last_seen_ns,
    first_send_ns (after ``Hello``), logged_bytes, end_bytes (where the last frame that was sent ends), and hello_* and
    bye_* for the four ``INSTANTS``.
    """
    stream, names = group_rows(hops, "conn", "incarnation", "direction")
    groups = Groups(stream, len(names))
    kind = numbers(hops["kind"], -1)
    columns: dict[str, Column] = {name: names[name] for name in names.column_names}
    columns |= {name: groups.most(hops[name]).cast(pa.int32()) for name in ("src_node", "dst_node")}
    columns["n_frames"] = pa.array(groups.count(valid(hops["tap_tx_ns"])))
    columns |= {"last_send_ns": groups.most(hops["log_send_ns"]), "last_recv_ns": groups.most(hops["log_recv_ns"])}
    columns["last_seen_ns"] = groups.most(pc.max_element_wise(hops["tap_tx_ns"], hops["tap_rx_ns"]))
    for frame, name in ((Hello, "hello"), (Bye, "bye")):
        columns |= {f"{name}_{end}_ns": groups.least(hops[at], kind == frame.kind) for end, at in INSTANTS.items()}
    logged = valid(hops["log_send_ns"]) | valid(hops["log_recv_ns"])
    columns["logged_bytes"] = groups.total(hops["len_bytes"], logged)
    columns["end_bytes"] = groups.most(pc.add(hops["off"], hops["len_bytes"]), valid(hops["log_send_ns"]))
    columns["first_send_ns"] = groups.least(hops["log_send_ns"], (kind != Hello.kind) & (kind >= 0))
    return pa.table(columns)


def condense_topics(copies: pa.Table) -> pa.Table:
    """Return the topics that each connection carried from one node to the other: conn, src_node, dst_node, topic."""
    lists = copies["topics"].combine_chunks()
    parents = copies.select(["conn", "src_node", "dst_node"]).take(pc.list_parent_indices(lists))
    carried = parents.append_column("topic", pc.list_flatten(lists))
    return group_rows(carried, *carried.column_names)[1]


def condense_arrivals(copies: pa.Table) -> pa.Table:
    """Return the first and the last copy that arrived of the copies with the same topics on a connection.

    Columns: conn, incarnation, src_node, dst_node, topics, log_send_ns, tap_rx_ns, log_recv_ns.
    """
    order = np.argsort(numbers(copies["tap_rx_ns"]), kind="stable")
    topics = pc.binary_join(copies["topics"].combine_chunks().cast(pa.list_(pa.string())), ",")
    named = copies.select(["conn", "incarnation", "src_node", "dst_node"]).append_column("topics", topics)
    group, names = group_rows(named, *named.column_names)
    first, last = np.empty((2, len(names)), np.int64)
    last[group[order]] = order  # the last of several assignments remains
    first[group[order[::-1]]] = order[::-1]
    chosen = copies.take(pa.array(np.unique(np.concatenate((first, last)))))
    return chosen.select([*named.column_names, "log_send_ns", "tap_rx_ns", "log_recv_ns"])


def describe_bytes(left: pa.Table) -> pa.Table:
    """Return how the bytes of each frame that left its host divide, as a table.

    Columns: conn, direction, off, kind, node, payload, ``len_bytes``, and ``useful``: whether the frame was the first
    copy at a node that wanted it. ``left`` comes from ``add_payload_bytes``.
    """
    first = pc.and_(pc.invert(left["is_dup"]), pc.invert(left["is_relay"]))
    columns = {name: left[name] for name in ("conn", "direction", "off", "kind", "len_bytes", "payload")}
    columns |= {"node": left["src_node"]}
    return pa.table(columns | {"useful": pc.fill_null(first, fill_value=False)})


def condense_bytes(left: pa.Table, zero_ns: int) -> pa.Table:
    """Sum stream bytes by sender, second, kind and use.

    Columns: node, kind, useful, second_ns, frames, framing_bytes, body_bytes.
    """
    described = describe_bytes(left)
    instant = numbers(left["tap_tx_ns"])
    seconds = pa.array(instant - (instant - zero_ns) % SECOND_NS)
    named = described.select(["node", "kind", "useful"]).append_column("second_ns", seconds)
    group, names = group_rows(named, *named.column_names)
    body, length = numbers(described["payload"]), numbers(described["len_bytes"])
    sums = {"frames": np.ones(len(group), np.int64), "framing_bytes": length - body, "body_bytes": body}
    for name, values in sums.items():
        names = names.append_column(name, pa.array(np.bincount(group, values, len(names)).astype(np.int64)))
    return names


def add_payload_bytes(left: pa.Table, known: pa.Table) -> pa.Table:
    """Add a column ``payload`` to frames: the bytes of a data frame's payload, 0 for other frames.

    The payload is what was published. What a protocol adds to a copy of it (``Data.routing``) is framing. If nobody
    published the message, the payload is the rest of the frame after header, topics and msgpack's array and length
    marks.

    Args:
        left: rows of ``hops``.
        known: message_id and payload_bytes of the messages that were published.
    """
    size = known["payload_bytes"].take(find([known["message_id"]], [left["message_id"]]))
    room = _room_bytes(left)
    return left.append_column("payload", pa.array(np.minimum(numbers(pc.coalesce(size, pa.array(room))), room)))


def _room_bytes(left: pa.Table) -> Ints:
    """Return the most bytes that a data frame's payload can have; 0 for other frames."""
    topics = numbers(pc.list_value_length(left["topics"]), 1)
    body = numbers(left["len_bytes"]) - HEADER_BYTES - 4 * topics - 1
    marks = np.select([body < 2 + 256, body < 3 + 65536], [2, 3], 5)
    room: Ints = np.where(numbers(left["kind"], -1) == Data.kind, np.maximum(body - marks, 0), 0)
    return room
