"""Find when nodes are up and what they subscribe to, by their traces: the intervals of which other tables are made.

Neither ``peer.core.schedule.Population`` nor ``metrics.facts.population.TracedPopulation`` is used: each ``join`` and
``leave`` event names the topics that it begins or ends. So the rows of each node and topic suffice, and any share of
the nodes can be made alone.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.facts.population import ENDINGS
from metrics.pcap.flows import factorise
from metrics.pcap.walk import Bools, Ints
from metrics.rundir import NodeOutline
from metrics.tables.columns import holds, numbers, says
from metrics.tables.schemas import schema_of
from metrics.tables.timespans import FOREVER, common_keys, latest_end, next_instants
from peer.trace import JOINED

UPTIMES: Final = schema_of("node int, from_ns bigint, to_ns bigint")
INTERESTS: Final = schema_of("node int, topic bigint, from_ns bigint, to_ns bigint, due_ns bigint")
STARTERS: Final = schema_of("node int, topics array<bigint>, up boolean")

CHANGES: Final = ("join", "leave")
"""The events of which uptimes and interests are made."""


def starters_of(overlay: Sequence[NodeOutline]) -> pa.Table:
    """Return ``STARTERS`` of every node: its subscriptions when the run starts, and whether it is up then."""
    columns = [[spec.node for spec in overlay], [list(spec.topics) for spec in overlay], [spec.up for spec in overlay]]
    return pa.table(columns, schema=STARTERS)


def build_uptimes(starters: pa.Table, events: pa.Table) -> pa.Table:
    """Return ``UPTIMES``: when nodes are up (half open); 0 and 2^63-1 stand for the run's ends.

    Args:
        starters: ``STARTERS`` of some nodes.
        events: ``traces.EVENTS`` of the same nodes.
    """
    reason, is_join = events["reason"], says(events["event"], "join")
    begins = is_join & holds(pc.equal(reason, JOINED))
    ends = says(events["event"], "leave") & holds(pc.is_in(reason, pa.array(ENDINGS)))
    changes = events.filter(pa.array(begins | ends))
    first = starters.filter(starters["up"])
    node = np.concatenate((numbers(first["node"]), numbers(changes["node"], -1)))
    from_ns = np.concatenate((np.zeros(len(first), np.int64), numbers(changes["ts_ns"])))
    up = np.concatenate((np.ones(len(first), np.bool_), begins[begins | ends]))
    to_ns = next_instants(factorise(node)[0], from_ns, FOREVER)
    return pa.table([pa.array(each[up]) for each in (node, from_ns, to_ns)], UPTIMES.names).cast(UPTIMES)


def had_interest(interests: pa.Table, rows: pa.Table, begun_ns: Ints, past_ns: Ints) -> Bools:
    """Return which nodes subscribed to one of their topics from one instant until after another, (n,).

    Args:
        interests: ``INTERESTS``.
        rows: (n,) node and topics.
        begun_ns: (n,) the subscription had begun by this instant.
        past_ns: (n,) it ended after this instant.
    """
    topics = rows["topics"].combine_chunks()
    row, topic = numbers(pc.list_parent_indices(topics)), pc.list_flatten(topics)
    theirs, asked = common_keys([interests["node"], interests["topic"]], [rows["node"].take(pa.array(row)), topic])
    since_ns, until_ns = numbers(interests["from_ns"]), numbers(interests["to_ns"])
    ends_ns = numbers(latest_end(theirs, since_ns, until_ns, asked, begun_ns[row]), -FOREVER)
    found = np.zeros(len(rows), np.bool_)
    np.logical_or.at(found, row, ends_ns > past_ns[row])
    return found


def build_interests(starters: pa.Table, events: pa.Table, settle_ns: int) -> pa.Table:
    """Return ``INTERESTS``: when nodes subscribe to topics (half open).

    Deliveries are expected from ``due_ns`` on: at least ``settle_ns`` after the node has joined.

    Args:
        starters: ``STARTERS`` of some nodes.
        events: ``traces.EVENTS`` of the same nodes.
        settle_ns: how long after a join no deliveries to the node are expected.
    """
    changes = events.filter(pc.is_in(events["event"], pa.array(CHANGES))).combine_chunks()
    joins, node, at_ns = says(changes["event"], "join"), numbers(changes["node"], -1), numbers(changes["ts_ns"])
    joined = joins & holds(pc.equal(changes["reason"], JOINED))
    settled_ns = latest_end(node[joined], at_ns[joined], at_ns[joined] + settle_ns, node, at_ns)
    due_ns = np.maximum(at_ns, numbers(settled_ns, -FOREVER))
    row, topic = (numbers(of(changes["topics"])) for of in (pc.list_parent_indices, pc.list_flatten))
    starters = starters.combine_chunks()
    first, initial = (numbers(of(starters["topics"])) for of in (pc.list_parent_indices, pc.list_flatten))
    nothing = np.zeros(len(first), np.int64)
    columns = {
        "node": np.concatenate((numbers(starters["node"])[first], node[row])),
        "topic": np.concatenate((initial, topic)),
        "from_ns": np.concatenate((nothing, at_ns[row])),
        "due_ns": np.concatenate((nothing, due_ns[row])),
    }
    begins = np.concatenate((nothing == 0, joins[row]))
    key, _ = factorise(columns["node"], columns["topic"])
    columns["to_ns"] = next_instants(key, columns["from_ns"], FOREVER)
    return pa.table([pa.array(columns[name][begins]) for name in INTERESTS.names], INTERESTS.names).cast(INTERESTS)
