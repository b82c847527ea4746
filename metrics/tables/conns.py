"""The ``conns`` table: one row per TCP connection or UDP flow; each direction's figures come from its sender's end."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.flows import factorise
from metrics.pcap.walk import Bools
from metrics.tables.columns import Column, Groups, conform, find, group_rows, numbers, says, valid
from metrics.tables.schemas import arrow_schema

CONNS: Final = arrow_schema("conns")
_IDENTITY: Final = ("conn", "proto", "id_orig_h", "id_orig_p", "id_resp_h", "id_resp_p", "conn_state", "history")
_ORIG: Final = ("orig_bytes", "orig_pkts", "orig_ip_bytes", "orig_retx_bytes")
_RESP: Final = ("resp_bytes", "resp_pkts", "resp_ip_bytes", "resp_retx_bytes")


def build_conns(
    staged: pa.Table, nodes: pa.Table, streams: pa.Table, carried: pa.Table, interests: pa.Table
) -> pa.Table:
    """Return the rows of the ``conns`` table.

    Args:
        staged: two rows per connection (one where only one end was captured), ``metrics.pcap.schemas.CONNS``.
        nodes: node and ip of every node.
        streams: ``condensed.condense_streams``.
        carried: ``condensed.condense_topics``.
        interests: node, topic of every subscription.
    """
    group, found = group_rows(staged, "uid")
    groups, at_orig = Groups(group, len(found)), says(staged["orig_tap"], "tx")
    begun = groups.least(staged["ts_ns"])
    columns: dict[str, Column] = {"uid": found["uid"], "ts_ns": begun}
    columns["duration_ns"] = pc.subtract(groups.most(pc.add(staged["ts_ns"], staged["duration_ns"])), begun)
    columns["missed_bytes"] = groups.total(staged["missed_bytes"], np.ones(len(staged), np.bool_))
    columns |= {name: _own_value(groups, staged[name], at_orig) for name in (*_IDENTITY, *_ORIG)}
    columns |= {name: _own_value(groups, staged[name], ~at_orig) for name in _RESP}
    for side in ("orig", "resp"):
        columns[f"{side}_node"] = nodes["node"].take(pc.index_in(columns[f"id_{side}_h"], nodes["ip"].combine_chunks()))
    content = count_content(streams, carried, interests)
    place = pc.index_in(columns["conn"], content["conn"].combine_chunks())
    for name in ("n_frames", "n_topics", "n_logical_links"):
        columns[name] = pc.fill_null(content[name].take(place), 0)
    return conform(columns, CONNS)


def _own_value(groups: Groups, values: Column, own: Bools) -> pa.Array:
    """Return each group's greatest value among its own rows; among all its rows if the own ones have no value."""
    whole = values.combine_chunks().dictionary_encode()
    order = pc.array_sort_indices(whole.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    ranks = pa.array(rank).take(whole.indices)
    return whole.dictionary.take(pa.array(order)).take(pc.coalesce(groups.most(ranks, own), groups.most(ranks)))


def count_content(streams: pa.Table, carried: pa.Table, interests: pa.Table) -> pa.Table:
    """Count what each connection carried: frames, topics of its data, and logical links (both ends subscribe).

    Columns: conn, n_frames, n_topics, n_logical_links; connections without a frame are left out.

    Args:
        streams: ``condensed.condense_streams``.
        carried: ``condensed.condense_topics``.
        interests: node, topic of every subscription.
    """
    streams = streams.filter(pc.greater(streams["n_frames"], 0))
    conn, found = group_rows(streams, "conn")
    n_frames = np.bincount(conn, numbers(streams["n_frames"]), len(found)).astype(np.int64)
    place, known = pc.index_in(carried["conn"], found["conn"].combine_chunks()), np.ones(len(carried), np.bool_)
    logical = known.copy()
    for side in ("src_node", "dst_node"):
        logical &= valid(find([interests["node"], interests["topic"]], [carried[side], carried["topic"]]))
    columns = {"conn": found["conn"], "n_frames": pa.array(n_frames)}
    for name, some in (("n_topics", known), ("n_logical_links", logical)):
        row = numbers(place, len(found))[some]
        pair, count = factorise(row, numbers(carried["topic"])[some])
        one = np.empty(count, np.int64)
        one[pair] = row
        columns[name] = pa.array(np.bincount(one, minlength=len(found) + 1)[: len(found)])
    return pa.table(columns)
