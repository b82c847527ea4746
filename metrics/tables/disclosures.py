"""The ``disclosures`` table: how much of what others subscribe to each asker has concluded."""

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from metrics.measures.attacks import NodeSet, measure_disclosure
from metrics.tables.traces import EVENTS


def build_disclosures(
    events: Path, interests: Path, askers: frozenset[int], adversaries: frozenset[int]
) -> list[dict[str, Any]]:
    """The table's rows, one for each asker.

    Args:
        events: ``traces.EVENTS`` as Parquet.
        interests: ``deliveries.subscriptions`` as Parquet.
        askers: the adversaries that ask.
        adversaries: all nodes that misbehave.
    """
    if not askers:
        return []
    told = pc.field("event") == "disclose"
    said = ds.dataset(events, schema=EVENTS).to_table(columns=["node", "peer", "topics"], filter=told)
    concluded: dict[int, dict[int, NodeSet]] = {asker: {} for asker in askers}
    for row in said.to_pylist():
        for topic in row["topics"]:
            nodes = concluded[row["node"]]
            nodes[topic] = nodes.get(topic, 0) | 1 << row["peer"]
    subscribers: dict[int, NodeSet] = {}
    for row in pq.read_table(interests, columns=["node", "topic"]).to_pylist():
        subscribers[row["topic"]] = subscribers.get(row["topic"], 0) | 1 << row["node"]
    return [row._asdict() for row in measure_disclosure(concluded, subscribers, adversaries)]
