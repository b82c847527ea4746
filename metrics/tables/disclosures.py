"""The ``disclosures`` table: how many subscriptions of other nodes each adversary that asks has found out."""

from typing import Any

import pyarrow.compute as pc

from metrics.facts.disclosures import Conclusions
from metrics.facts.population import add_node
from metrics.storage import Place
from metrics.storage.parquet import open_dataset, read_parquet
from metrics.tables.traces import EVENTS
from peer.core.bitset import Bitset


def build_disclosures(
    events: Place, interests: Place, askers: frozenset[int], adversaries: frozenset[int]
) -> list[dict[str, Any]]:
    """Return the table's rows, one for each adversary that asks.

    Args:
        events: ``traces.EVENTS`` as Parquet.
        interests: ``interests.INTERESTS`` as Parquet.
        askers: the adversaries that ask.
        adversaries: all nodes that misbehave.
    """
    if not askers:
        return []
    told = pc.field("event") == "disclose"
    said = open_dataset(events, EVENTS).to_table(columns=["node", "peer", "topics"], filter=told)
    conclusions = Conclusions()
    for row in said.to_pylist():
        conclusions.add(row["node"], row["peer"], row["topics"])
    subscribers: dict[int, Bitset] = {}
    for row in read_parquet(interests, columns=["node", "topic"]).to_pylist():
        add_node(subscribers, (row["topic"],), row["node"])
    return [row._asdict() for row in conclusions.measure(askers, subscribers, adversaries)]
