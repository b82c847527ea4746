"""Which nodes of a run misbehaved on purpose: measures look at honest nodes, and at these nodes separately."""

import pyarrow as pa
import pyarrow.compute as pc

from metrics.rundir import RunDir


def read_behaviours(run: RunDir) -> dict[int, str]:
    """Return the kind of behaviour that ``overlay.json`` gives to each node that misbehaves."""
    return {spec.node: spec.behaviour.name for spec in run.overlay if spec.behaviour is not None}


def read_adversaries(run: RunDir, kind: str | None = None) -> frozenset[int]:
    """Return the nodes that misbehave, or only nodes with one kind of behaviour."""
    return frozenset(node for node, behaviour in read_behaviours(run).items() if kind in (None, behaviour))


def of_nodes(table: pa.Table, column: str, nodes: frozenset[int], *, others: bool = False) -> pa.Table:
    """Return the rows of some nodes, or of all others.

    Args:
        table: any rows.
        column: the column with the nodes.
        nodes: the nodes.
        others: return the rows of all other nodes instead.
    """
    chosen = pc.is_in(table[column], pa.array(sorted(nodes), table[column].type))
    return table.filter(pc.invert(chosen) if others else chosen)
