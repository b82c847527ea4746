"""The deliveries and copies of a run row by row, for the bootstrap over messages."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.adversaries import of_nodes
from metrics.measures.deliveries import Deliveries
from metrics.measures.measure import Values
from metrics.rundir import RunDir
from metrics.tables.columns import read_columns
from peer.core.frames import Data


class DeliveryRows(NamedTuple):
    """The rows from which the measures of deliveries are computed, all of honest nodes.

    Attributes:
        messages: how many messages were published.
        deliveries: the expected deliveries: message_id, delivered_ns, latency_ms, hops, known.
        received: the copies: message_id, dst_node, is_dup, is_relay, at_relay.
    """

    messages: int
    deliveries: pa.Table
    received: pa.Table

    @property
    def facts(self) -> Deliveries:
        """The facts for the formulas."""
        sums = [(name, "sum") for name in ("is_dup", "is_relay", "at_relay")]
        by_node = self.received.group_by("dst_node").aggregate([([], "count_all"), *sums])
        return Deliveries(
            messages=self.messages,
            expected=len(self.deliveries),
            delivered=len(self.deliveries) - self.deliveries["delivered_ns"].null_count,
            unknown=len(self.deliveries) - (pc.sum(self.deliveries["known"]).as_py() or 0),
            delays_ms=_present(self.deliveries, "latency_ms"),
            hops=_present(self.deliveries, "hops"),
            relays=pc.sum(by_node["is_relay_sum"]).as_py() or 0,
            duplicates=pc.sum(by_node["is_dup_sum"]).as_py() or 0,
            copies=by_node["count_all"].to_numpy(),
            at_relay=by_node["at_relay_sum"].to_numpy().astype(np.int64),
        )


def read_delivery_rows(run: RunDir, adversaries: frozenset[int]) -> DeliveryRows:
    """Read deliveries to honest nodes, and the copies that arrived there."""
    rows = read_columns(run, "deliveries", "node", "message_id", "delivered_ns", "latency_ms", "hops", "known")
    return DeliveryRows(
        len(read_columns(run, "messages", "publish_ns")),
        of_nodes(rows, "node", adversaries, others=True),
        _read_received(run, adversaries),
    )


def _read_received(run: RunDir, adversaries: frozenset[int]) -> pa.Table:
    """Return the copies that honest nodes received and handled."""
    columns = ("message_id", "dst_node", "is_dup", "is_relay", "at_relay")
    hops = read_columns(run, "hops", "kind", *columns)
    handled = hops.filter(pc.and_(pc.equal(hops["kind"], Data.kind), pc.is_valid(hops["at_relay"])))
    return of_nodes(handled, "dst_node", adversaries, others=True).select(columns)


def _present(table: pa.Table, column: str) -> Values:
    return np.asarray(table[column].drop_null().to_numpy())
