"""The copies of messages that nodes received in a run."""

import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import of_nodes
from metrics.rundir import RunDir
from metrics.tables.columns import read_columns
from peer.core.frames import Data


def read_received(run: RunDir, adversaries: frozenset[int], *columns: str) -> pa.Table:
    """Return the copies that honest nodes received and handled.

    Args:
        run: a run with its tables.
        adversaries: the nodes that misbehave.
        columns: of the table ``hops``, besides ``dst_node`` and ``at_relay``.
    """
    hops = read_columns(run, "hops", "dst_node", "kind", "at_relay", *columns)
    handled = hops.filter(pc.and_(pc.equal(hops["kind"], Data.kind), pc.is_valid(hops["at_relay"])))
    return of_nodes(handled, "dst_node", adversaries, others=True).drop_columns(["kind"])
