"""What later tables need of the hops, condensed while a share's rows are at hand.

That is a few rows a stream, link or second, on which Spark's joins cost little.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.walk import Ints
from metrics.tables.columns import Column, Groups, group_rows, numbers, valid
from metrics.tables.hops import HopSources, build_hops
from metrics.tables.shares import Share
from peer.core.frames import Bye, Data, Hello
from peer.wire import HEADER_BYTES

INSTANTS: Final = {"log": "log_send_ns", "tx": "tap_tx_ns", "rx": "tap_rx_ns", "read": "log_recv_ns"}
_SECOND_NS = 1_000_000_000


def build_and_condense(sources: HopSources, zero_ns: int, share: Share) -> dict[str, pa.Table]:
    """A share of ``hops``, and of ``streams``, ``carried``, ``copies``, ``sent`` and ``split`` (see there)."""
    rows = build_hops(sources, share)
    data = pc.fill_null(pc.equal(rows["kind"], Data.kind), fill_value=False)
    left = rows.filter(pc.is_valid(rows["tap_tx_ns"]))
    whole = pc.less_equal(left["n_seconds"], 1)
    return {
        "hops": rows,
        "streams": condense_streams(rows),
        "carried": condense_topics(rows.filter(pc.and_(data, pc.is_valid(rows["tap_tx_ns"])))),
        "copies": condense_copies(rows.filter(pc.and_(data, pc.is_valid(rows["tap_rx_ns"])))),
        "sent": condense_bytes(left.filter(whole), zero_ns),
        "split": describe_bytes(left.filter(pc.invert(whole))),
    }


def condense_streams(hops: pa.Table) -> pa.Table:
    """Of one direction of a connection: its nodes, its ``Hello`` and ``Bye``, its frames at the sender's tap, its last.

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
    """Which topics a connection carried from which node to which: conn, src_node, dst_node, topic."""
    lists = copies["topics"].combine_chunks()
    parents = copies.select(["conn", "src_node", "dst_node"]).take(pc.list_parent_indices(lists))
    carried = parents.append_column("topic", pc.list_flatten(lists))
    return group_rows(carried, *carried.column_names)[1]


def condense_copies(copies: pa.Table) -> pa.Table:
    """Of the copies with the same topics on a connection the first and the last one that arrived.

    Columns: conn, incarnation, src_node, dst_node, topics, log_send_ns, tap_rx_ns, log_recv_ns.
    """
    order = np.argsort(numbers(copies["tap_rx_ns"]), kind="stable")
    topics = pc.binary_join(copies["topics"].combine_chunks().cast(pa.list_(pa.string())), ",")
    named = copies.select(["conn", "incarnation", "src_node", "dst_node"]).append_column("topics", topics)
    group, names = group_rows(named, *named.column_names)
    first, last = np.empty((2, len(names)), np.int64)
    last[group[order]] = order  # of several assignments the last stays
    first[group[order[::-1]]] = order[::-1]
    chosen = copies.take(pa.array(np.concatenate((first, last))))
    return chosen.select([*named.column_names, "log_send_ns", "tap_rx_ns", "log_recv_ns"])


def describe_bytes(left: pa.Table) -> pa.Table:
    """How the bytes of frames that left their host divide: conn, direction, off, kind, node, payload, ``len_bytes``.

    ``useful``: whether it was the first copy at a node that wanted it.
    """
    first = pc.and_(pc.invert(left["is_dup"]), pc.invert(left["is_relay"]))
    columns = {name: left[name] for name in ("conn", "direction", "off", "kind", "len_bytes")}
    columns |= {"node": left["src_node"], "payload": pa.array(_payload_bytes(left))}
    return pa.table(columns | {"useful": pc.fill_null(first, fill_value=False)})


def condense_bytes(left: pa.Table, zero_ns: int) -> pa.Table:
    """Stream bytes by sender, second, kind and use.

    Columns: node, kind, useful, second_ns, frames, framing_bytes, body_bytes.
    """
    described = describe_bytes(left)
    instant = numbers(left["tap_tx_ns"])
    seconds = pa.array(instant - (instant - zero_ns) % _SECOND_NS)
    named = described.select(["node", "kind", "useful"]).append_column("second_ns", seconds)
    group, names = group_rows(named, *named.column_names)
    body, length = numbers(described["payload"]), numbers(described["len_bytes"])
    sums = {"frames": np.ones(len(group), np.int64), "framing_bytes": length - body, "body_bytes": body}
    for name, values in sums.items():
        names = names.append_column(name, pa.array(np.bincount(group, values, len(names)).astype(np.int64)))
    return names


def _payload_bytes(left: pa.Table) -> Ints:
    """Bytes of a data frame's payload: what is left of it after header, topics and msgpack's array and length marks."""
    topics = numbers(pc.list_value_length(left["topics"]), 1)
    body = numbers(left["len_bytes"]) - HEADER_BYTES - 4 * topics - 1
    marks = np.select([body < 2 + 256, body < 3 + 65536], [2, 3], 5)
    payload: Ints = np.where(numbers(left["kind"], -1) == Data.kind, np.maximum(body - marks, 0), 0)
    return payload
