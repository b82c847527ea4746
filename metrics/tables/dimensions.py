"""The tables with which others are joined: ``nodes``, ``subscriptions`` and ``instances``."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.rundir.documents import Placement
from metrics.tables.columns import conform, numbers
from metrics.tables.schemas import arrow_schema
from topologies.model import Host


def build_nodes(
    placement: Sequence[Placement], hosts: Sequence[Host], starters: pa.Table, behaviours: Mapping[int, str]
) -> pa.Table:
    """Return the table ``nodes``: one row per node, in order.

    Args:
        placement: the placement of every node.
        hosts: the hosts of the underlay, by number.
        starters: ``interests.STARTERS``.
        behaviours: the kind of behaviour of each node that misbehaves (``metrics.adversaries.read_behaviours``).
    """
    up = dict(zip(starters["node"].to_pylist(), starters["up"].to_pylist(), strict=True))
    rows = []
    for place in sorted(placement, key=lambda place: place.node):
        host = hosts[place.host]
        rows.append(
            {
                "node": place.node,
                "host": place.host,
                "host_name": host.name,
                "city": None if host.latitude is None else host.site,
                "country": host.country or None,
                "latitude": host.latitude,
                "longitude": host.longitude,
                "machine": place.machine,
                "wan_ip": place.wan_ip,
                "up_at_start": up[place.node],
                "adversary": behaviours.get(place.node),
                "implementation": place.implementation or None,
            }
        )
    return pa.Table.from_pylist(rows, arrow_schema("nodes"))


def build_subscriptions(interests: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    """Return the table ``subscriptions``, in order of node, topic and time.

    Args:
        interests: the interests of some nodes, ``interests.INTERESTS``.
        start_ns: when the peers start.
        end_ns: the end of the run.
    """
    columns = {name: interests[name] for name in ("node", "topic")}
    columns |= _within(interests, start_ns, end_ns)
    columns["due_ns"] = pa.array(np.maximum(numbers(interests["due_ns"]), start_ns))
    return _rising(conform(columns, arrow_schema("subscriptions")), "node", "topic", "from_ns")


def build_instances(uptimes: pa.Table, start_ns: int, end_ns: int) -> pa.Table:
    """Return the table ``instances``, in order of node and time.

    Args:
        uptimes: the uptimes of some nodes, ``interests.UPTIMES``.
        start_ns: when the peers start.
        end_ns: the end of the run.
    """
    rows = _rising(uptimes, "node", "from_ns")
    node = numbers(rows["node"])
    columns = {"node": rows["node"]} | _within(rows, start_ns, end_ns)
    columns["instance"] = pa.array(np.arange(len(node)) - np.searchsorted(node, node))
    return conform(columns, arrow_schema("instances"))


def _within(rows: pa.Table, start_ns: int, end_ns: int) -> dict[str, pa.Array]:
    """Cut intervals at the run's ends, and return whether they lasted until its end."""
    since, until = numbers(rows["from_ns"]), numbers(rows["to_ns"])
    return {
        "from_ns": pa.array(np.maximum(since, start_ns)),
        "to_ns": pa.array(np.minimum(until, end_ns)),
        "to_end": pa.array(until > end_ns),
    }


def _rising(rows: pa.Table, *columns: str) -> pa.Table:
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in columns]))
