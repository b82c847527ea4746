"""Which nodes of a run misbehaved on purpose: measures look at honest nodes, and at these apart."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from metrics.rundata import RunDir


def read_adversaries(run: RunDir) -> frozenset[int]:
    """The nodes to which ``overlay.json`` gives a behaviour."""
    nodes = json.loads((run.path / "overlay.json").read_bytes())["nodes"]
    return frozenset(node["node"] for node in nodes if node.get("behaviour"))


def of_nodes(table: pa.Table, column: str, nodes: frozenset[int], *, others: bool = False) -> pa.Table:
    """The rows of some nodes, or of all others."""
    chosen = pc.is_in(table[column], pa.array(sorted(nodes), table[column].type))
    return table.filter(pc.invert(chosen) if others else chosen)
