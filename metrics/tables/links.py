"""Logical and physical links: intervals from the traces, and the sizes of views over time from traces and wire."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.pcap.flows import factorise
from metrics.tables.columns import codes, conform, numbers, says
from metrics.tables.schemas import arrow_schema
from metrics.tables.timespans import (
    FOREVER,
    SECOND_NS,
    Grid,
    common_keys,
    count_lasting,
    latest_end,
    next_instants,
    on_grid,
    unite,
)

LINKS: Final = arrow_schema("links")
PHYSICAL: Final = arrow_schema("physical_links")
SHARING: Final = arrow_schema("sharing")

CHANGES: Final = ("add_peer", "remove_peer", "graft", "prune")
"""The events of which links are made."""


def build_physical_links(events: pa.Table, end_ns: int) -> pa.Table:
    """Return the ``physical_links`` table: a connection as one of its nodes knew it, ``add_peer`` to ``remove_peer``.

    Args:
        events: ``traces.EVENTS`` of whole nodes.
        end_ns: the end of an interval that the trace does not end.
    """
    changes = events.filter(pc.is_in(events["event"], pa.array(["add_peer", "remove_peer"])))
    key, _ = factorise(numbers(changes["node"], -1), numbers(changes["peer"], -1), codes(changes["conn"]))
    from_ns = numbers(changes["ts_ns"])
    columns = {name: changes[name] for name in ("node", "peer", "conn")}
    columns["opened"] = pc.equal(changes["direction"], "orig")
    columns["from_ns"] = changes["ts_ns"]
    columns["to_ns"] = pa.array(np.maximum(from_ns, next_instants(key, from_ns, end_ns)))
    return conform(columns, PHYSICAL).filter(pa.array(says(changes["event"], "add_peer")))


def build_links(events: pa.Table, physical: pa.Table, end_ns: int) -> pa.Table:
    """Return the ``links`` table: from ``graft`` to ``prune``, or to the end of the last physical link that carried it.

    Args:
        events: ``traces.EVENTS`` of whole nodes.
        physical: their ``physical_links``.
        end_ns: the end of an interval that nothing else ends.
    """
    changes = events.filter(pc.is_in(events["event"], pa.array(["graft", "prune"]))).combine_chunks()
    topics = pc.list_flatten(changes["topics"])
    changes = changes.take(pc.list_parent_indices(changes["topics"])).append_column("topic", topics)
    key, _ = factorise(*(numbers(changes[name], -1) for name in ("node", "peer", "topic")))
    next_ns = next_instants(key, numbers(changes["ts_ns"]), FOREVER)
    is_graft = pa.array(says(changes["event"], "graft"))
    grafts = changes.filter(is_graft)
    pair, carrier = common_keys(*([rows["node"], rows["peer"]] for rows in (grafts, physical)))
    from_ns = numbers(grafts["ts_ns"])
    down_ns = latest_end(carrier, numbers(physical["from_ns"]), numbers(physical["to_ns"]), pair, from_ns)
    carried_ns = numbers(down_ns, -1)
    to_ns = np.minimum(
        pa.array(next_ns).filter(is_graft).to_numpy(), np.where(carried_ns >= from_ns, carried_ns, end_ns)
    )
    columns = {name: grafts[name] for name in ("node", "peer", "topic")}
    return conform(columns | {"from_ns": grafts["ts_ns"], "to_ns": pa.array(to_ns)}, LINKS)


def build_sharing(
    source: str,
    logical: pa.Table,
    physical: pa.Table,
    instances: pa.Table,
    grid: Grid,
    unknown: Sequence[int] = (),
) -> pa.Table:
    """Return the rows of the ``sharing`` table for one source.

    Args:
        source: ``trace``, ``wire`` or ``frames``.
        logical: node, peer, topic, from_ns, to_ns.
        physical: node, peer, from_ns, to_ns.
        instances: node, from_ns, to_ns of every time that a node is up; the table has rows for these times only.
        grid: the instants.
        unknown: nodes with logical links that are not known: the sizes of their views are null.
    """
    nodes = instances["node"].combine_chunks().unique()
    up = _count(instances, ["node"], nodes, grid) > 0
    sizes = {
        "view_size_total": _count(logical, ["node", "peer", "topic"], nodes, grid)[up],
        "view_size_unique": _count(logical, ["node", "peer"], nodes, grid)[up],
        "degree": _count(physical, ["node", "peer"], nodes, grid)[up],
    }
    row, instant = np.nonzero(up)
    zero_ns, first, _ = grid
    total, unique = sizes["view_size_total"], sizes["view_size_unique"]
    ratio = np.divide(total, unique, out=np.zeros(len(total)), where=unique > 0)
    owner = nodes.take(pa.array(row))
    hidden = np.isin(numbers(owner), unknown)
    columns = {
        "source": pa.repeat(source, len(row)),
        "at_ns": pa.array((instant + first) * SECOND_NS + zero_ns),
        "node": owner,
        "view_size_total": pa.array(total, mask=hidden),
        "view_size_unique": pa.array(unique, mask=hidden),
        "degree": pa.array(sizes["degree"]),
        "link_sharing_ratio": pa.array(ratio, mask=hidden | (unique == 0)),
    }
    return conform(columns, SHARING)


def _count(rows: pa.Table, columns: list[str], nodes: pa.Array, grid: Grid) -> np.ndarray:
    """Count different values of the columns that last, (nodes, instants), by node (the first column) and instant."""
    place = pc.index_in(rows["node"], nodes)
    rows = rows.filter(pc.is_valid(place))
    key, count = factorise(*(numbers(rows[name], -1) for name in columns))
    owner = np.zeros(count, np.int64)
    owner[key] = numbers(place.drop_null())
    key, begin, end = unite(on_grid(key, numbers(rows["from_ns"]), numbers(rows["to_ns"]), grid))
    return count_lasting(owner[key], begin, end, len(nodes), grid)
