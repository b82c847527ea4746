"""The ``disclosures`` table: how many subscriptions of other nodes each adversary that asks has found out."""

from typing import Any

import pyarrow.compute as pc

from metrics.measures.attacks import NodeSet, measure_disclosure
from metrics.storage import Place
from metrics.storage.parquet import open_dataset, read_parquet
from metrics.tables.traces import EVENTS


def build_disclosures(
    events: Place, interests: Place, askers: frozenset[int], adversaries: frozenset[int]
) -> list[dict[str, Any]]:
    """Return the table's rows, one for each adversary that asks.

    Args:
        events: ``traces.EVENTS`` as Parquet.
        interests: ``deliveries.subscriptions`` as Parquet.
        askers: the adversaries that ask.
        adversaries: all nodes that misbehave.
    """
    if not askers:
        return []
    told = pc.field("event") == "disclose"
    said = open_dataset(events, EVENTS).to_table(columns=["node", "peer", "topics"], filter=told)
    concluded: dict[int, dict[int, NodeSet]] = {asker: {} for asker in askers}
    for row in said.to_pylist():
        for topic in row["topics"]:
            nodes = concluded[row["node"]]
            nodes[topic] = nodes.get(topic, 0) | 1 << row["peer"]
    subscribers: dict[int, NodeSet] = {}
    for row in read_parquet(interests, columns=["node", "topic"]).to_pylist():
        subscribers[row["topic"]] = subscribers.get(row["topic"], 0) | 1 << row["node"]
    return [row._asdict() for row in measure_disclosure(concluded, subscribers, adversaries)]
