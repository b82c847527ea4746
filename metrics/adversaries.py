"""Which nodes of a run misbehaved on purpose: measures look at honest nodes, and at these apart."""

import json

import pyarrow as pa
import pyarrow.compute as pc

from metrics.rundir import RunDir
from peer.files import OVERLAY_FILE


def read_adversaries(run: RunDir, kind: str | None = None) -> frozenset[int]:
    """The nodes to which ``overlay.json`` gives a behaviour, or those with one kind of it."""
    nodes = json.loads((run.path / OVERLAY_FILE).read_bytes())["nodes"]
    bad = {node["node"]: node["behaviour"] for node in nodes if node.get("behaviour")}
    return frozenset(node for node, behaviour in bad.items() if kind in (None, behaviour["name"]))


def of_nodes(table: pa.Table, column: str, nodes: frozenset[int], *, others: bool = False) -> pa.Table:
    """The rows of some nodes, or of all others."""
    chosen = pc.is_in(table[column], pa.array(sorted(nodes), table[column].type))
    return table.filter(pc.invert(chosen) if others else chosen)
