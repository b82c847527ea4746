"""Find the earliest instant at which packets could have brought a message to a node, whatever the packets contain.

A chain of packets brings a message from its publisher to a node if each packet has payload and left its host after the
packet before it had arrived there. The earliest end of such a chain is a lower bound of every delivery, also for a
program whose frames are not known. The payload that arrived gives a second bound of what a node can have delivered.

The instants are read at the taps: a packet leaves after its sender wrote it, and arrives before its receiver reads it.
A message counts from the instant at which it was due, since a program reports a publication after the fact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.checks.evidence import Bounds
from metrics.executors import Executor
from metrics.pcap.flows import factorise
from metrics.pcap.walk import Ints
from metrics.storage import Place
from metrics.storage.parquet import open_dataset
from metrics.tables.buckets import divide, of_messages
from metrics.tables.columns import conform, find, numbers, valid
from metrics.tables.first_deliveries import find_first
from metrics.tables.published import PUBLISHED
from metrics.tables.schemas import schema_of
from metrics.tables.shares import PIECE_ROWS, Share, write_share
from metrics.tables.tallies import add_counts
from metrics.tables.traces import TOLD
from metrics.tables.transits import TRANSITS

EARLIEST: Final = schema_of("message_id bigint, node int, earliest_ns bigint")
"""A delivery, and the earliest instant at which it could have been made; null if no chain of packets led to it."""

MOST_PACKETS: Final = 1_000_000
"""If there are more packets, peers whose frames are known get no bound, since each packet takes about 5 us."""

MOST_STATES: Final = 20_000_000
"""The number of (message, node) pairs that are in memory at a time."""

NEVER: Final = 2**63 - 1
_MS: Final = 1e6


@dataclass(frozen=True)
class EarliestSources:
    """The sources, as Parquet files: what is known of messages, deliveries and packets."""

    published: Place  # ``PUBLISHED``
    told: Place  # ``TOLD``
    transits: Place  # ``TRANSITS``
    nodes: int  # the largest number of a node, plus one
    buckets: int


class Packets(NamedTuple):
    """Packets with payload that arrived, in the order in which they left; arrays are (n,)."""

    src: Ints
    dst: Ints
    sent_ns: Ints
    came_ns: Ints
    payload_bytes: Ints


class Messages(NamedTuple):
    """Messages in the order in which they were due; arrays are (m,)."""

    publisher: Ints
    due_ns: Ints
    last_ns: Ints  # the last delivery


class _Counts(NamedTuple):
    tested: int
    impossible: int
    unreached: int
    sized: int
    lacking: int


def find_earliest(executor: Executor, sources: EarliestSources, target: Place) -> Bounds:
    """Find the earliest instant of each delivery, and judge the deliveries by it.

    Args:
        executor: runs the tasks, one per span of time.
        sources: what is known of messages, deliveries and packets.
        target: the folder of ``EARLIEST``, in buckets of messages.
    """
    target.mkdir()
    [spans] = executor.map(_plan_spans, [sources])
    found = executor.map(partial(_find_in_span, sources, target), list(enumerate(spans)))
    counts = add_counts(_Counts(0, 0, 0, 0, 0), *(each for each, _ in found))
    return Bounds(*counts, worst_ms=max((worst_ms for _, worst_ms in found), default=0.0))


def _plan_spans(sources: EarliestSources) -> list[tuple[int, int]]:
    """Divide time so that each task holds a bounded number of packets and states."""
    due_ns = np.sort(_due_ns(open_dataset(sources.published, PUBLISHED).to_table(columns=_DUE)))
    packets = open_dataset(sources.transits, TRANSITS).count_rows()
    count = max(-(-packets // PIECE_ROWS), -(-len(due_ns) * sources.nodes // MOST_STATES), 1)
    inner = due_ns[np.arange(1, count) * len(due_ns) // count] if len(due_ns) else due_ns
    bounds = [-NEVER, *np.unique(inner).tolist(), NEVER]
    return list(pairwise(bounds))


_DUE: Final = ["scheduled_ns", "publish_ns"]


def _due_ns(messages: pa.Table) -> Ints:
    """Return when each message was due; without a schedule, when it was published; never if this is not known."""
    return numbers(pc.min_element_wise(*(messages[name] for name in _DUE)), NEVER)


def _find_in_span(
    sources: EarliestSources, target: Place, numbered: tuple[int, tuple[int, int]]
) -> tuple[_Counts, float]:
    number, (since_ns, until_ns) = numbered
    columns = ["message_id", "publisher", "payload_bytes", *_DUE]
    published = open_dataset(sources.published, PUBLISHED).to_table(columns=columns)
    due_ns, publisher = _due_ns(published), numbers(published["publisher"])
    chosen = (since_ns <= due_ns) & (due_ns < until_ns) & (publisher >= 0) & (publisher < sources.nodes)
    order = np.argsort(due_ns, kind="stable")
    order = order[chosen[order]]
    published, due_ns = published.take(pa.array(order)).combine_chunks(), due_ns[order]
    message, node, delivered_ns = _first_deliveries(sources, published)
    last_ns = np.full(len(published), -NEVER)
    np.maximum.at(last_ns, message, delivered_ns)
    packets = _read_packets(sources.transits, due_ns, last_ns)
    earliest_ns = find_chains(packets, Messages(numbers(published["publisher"]), due_ns, last_ns), sources.nodes)
    found_ns = earliest_ns[node, message]
    rows = {
        "message_id": published["message_id"].take(pa.array(message)),
        "node": pa.array(node),
        "earliest_ns": pa.array(found_ns, mask=found_ns == NEVER),
    }
    bucketed = divide(conform(rows, EARLIEST), of_messages(rows["message_id"], sources.buckets), sources.buckets)
    write_share({"earliest": bucketed}, {"earliest": target}, Share(number))
    sized = valid(published["payload_bytes"])[message]
    size = numbers(published["payload_bytes"])[message]
    wanted = Deliveries(*(each[sized] for each in (node, due_ns[message], delivered_ns, size)))
    late_ns = (found_ns - delivered_ns)[found_ns != NEVER]
    counts = _Counts(
        tested=len(node),
        impossible=int(np.count_nonzero(found_ns > delivered_ns)),
        unreached=int(np.count_nonzero(found_ns == NEVER)),
        sized=len(wanted.node),
        lacking=count_lacking(packets, wanted),
    )
    return counts, max(0.0, float(late_ns.max(initial=0)) / _MS)


def _first_deliveries(sources: EarliestSources, published: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Find the first delivery of each message to each other node: the message's row, the node and the instant.

    A trace may name any node. Nodes beyond the plan are left out.
    """
    where = (pc.field("event") == "deliver") & pc.field("message_id").isin(published["message_id"])
    told = open_dataset(sources.told, TOLD).to_table(columns=["message_id", "node", "ts_ns"], filter=where)
    message, node = (
        numbers(find([published["message_id"]], [told["message_id"]])),
        numbers(told["node"]),
    )
    ts_ns = numbers(told["ts_ns"])
    other = (node != numbers(published["publisher"])[message]) if len(published) else np.zeros(0, np.bool_)
    other &= (node >= 0) & (node < sources.nodes)
    message, node, ts_ns = message[other], node[other], ts_ns[other]
    pair, pairs = factorise(message, node)
    first = find_first(pair, ts_ns, pairs).row
    chosen = first[np.lexsort((node[first], message[first]))]
    return message[chosen], node[chosen], ts_ns[chosen]


def _read_packets(transits: Place, due_ns: Ints, last_ns: Ints) -> Packets:
    """Read the packets with payload that arrived between the first publication and the last delivery.

    If several packets have the same headers and some of them were lost, each may have left at any time before it
    arrived.
    """
    within = pc.field("came_ns") >= int(due_ns.min(initial=NEVER))
    within &= pc.field("came_ns") <= int(last_ns.max(initial=-NEVER))
    sent_ns = pc.if_else(pc.field("is_clear"), pc.field("sent_ns"), pc.field("came_ns"))
    columns = {name: pc.field(f"{name}_node") for name in ("src", "dst")}
    columns |= {"sent_ns": sent_ns, "came_ns": pc.field("came_ns"), "payload_bytes": pc.field("payload_bytes")}
    rows = open_dataset(transits, TRANSITS).to_table(columns=columns, filter=within & (pc.field("payload_bytes") > 0))
    rows = rows.sort_by([("sent_ns", "ascending")])
    return Packets(**{name: numbers(rows[name]) for name in Packets._fields})


def find_chains(packets: Packets, messages: Messages, nodes: int) -> Ints:
    """Find the earliest instant at which each message could be at each node, (nodes, messages); ``NEVER`` = at none.

    Packets are taken in the order in which they left: all packets that arrived before one left were sent earlier. For
    each message, packets up to its last delivery count.

    Args:
        packets: packets with payload that arrived.
        messages: the messages.
        nodes: the largest number of a node, plus one.
    """
    earliest_ns = np.full((nodes, len(messages.due_ns)), NEVER)
    earliest_ns[messages.publisher, np.arange(len(messages.due_ns))] = messages.due_ns
    begun = np.searchsorted(messages.due_ns, packets.sent_ns, "right")
    over = np.searchsorted(np.maximum.accumulate(messages.last_ns), packets.sent_ns, "left")
    used = np.flatnonzero(over < begun)
    columns = (packets.src, packets.dst, packets.sent_ns, packets.came_ns, over, begun)
    for src, dst, sent_ns, came_ns, low, high in zip(*(each[used].tolist() for each in columns), strict=True):
        there = earliest_ns[dst, low:high]
        np.minimum(there, came_ns, out=there, where=earliest_ns[src, low:high] <= sent_ns)
    return earliest_ns


class Deliveries(NamedTuple):
    """Deliveries of messages whose size is known; arrays are (n,)."""

    node: Ints
    due_ns: Ints
    delivered_ns: Ints
    payload_bytes: Ints


def count_lacking(packets: Packets, deliveries: Deliveries) -> int:
    """Count the deliveries for which too little payload arrived at the node between publication and delivery.

    Each byte counts for one message: of the messages that were published and lack bytes, the one that is delivered
    first. This order serves as many messages as possible.
    """
    came = np.lexsort((packets.came_ns, packets.dst))
    due = np.lexsort((deliveries.due_ns, deliveries.node))
    return sum(
        _count_at_node(
            zip(packets.came_ns[some].tolist(), packets.payload_bytes[some].tolist(), strict=True),
            list(zip(*(each[own].tolist() for each in deliveries[1:]), strict=True)),
        )
        for own, some in _by_node(deliveries.node[due], due, packets.dst[came], came)
    )


def _by_node(node: Ints, rows: Ints, other: Ints, others: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows of each node, and the rows of the other kind of the same node."""
    for each in np.unique(node).tolist():
        yield (
            rows[slice(*np.searchsorted(node, (each, each + 1)))],
            others[slice(*np.searchsorted(other, (each, each + 1)))],
        )


def _count_at_node(arrivals: Iterator[tuple[int, int]], wanted: list[tuple[int, int, int]]) -> int:
    """Give the bytes of arrivals to messages, and count the messages that lack bytes.

    Args:
        arrivals: when payload arrived, and how much, in order of time.
        wanted: when each message was due and delivered, and how many bytes it has, in the order in which they were due.
    """
    lacking, taken, waiting = 0, 0, list[tuple[int, int]]()
    for at_ns, size in arrivals:
        while taken < len(wanted) and wanted[taken][0] <= at_ns:
            heappush(waiting, wanted[taken][1:])
            taken += 1
        while waiting and waiting[0][0] < at_ns:
            heappop(waiting)
            lacking += 1
        while size and waiting:
            delivered_ns, bytes_left = heappop(waiting)
            used = min(size, bytes_left)
            size -= used
            if used < bytes_left:
                heappush(waiting, (delivered_ns, bytes_left - used))
    return lacking + len(waiting) + len(wanted) - taken
