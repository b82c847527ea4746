"""The tables of messages, of their copies, and of all (message, subscriber) pairs for which a delivery is expected."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metrics.asked import find_asked
from metrics.pcap.flows import factorise
from metrics.pcap.walk import Bools, Ints
from metrics.reported import Missing, hide_columns
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables import shares
from metrics.tables.buckets import bucket_dataset, read_bucket
from metrics.tables.columns import Column, Groups, conform, find, numbers, valid
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.earliest import EARLIEST
from metrics.tables.first_deliveries import find_first, list_members
from metrics.tables.published import PUBLISHED
from metrics.tables.schemas import arrow_schema
from metrics.tables.shares import Rows, Share, Tables
from metrics.tables.traces import TOLD
from peer.core.addressing.keywords import find_members, terms_of_topics
from peer.core.bitset import Bitset, bitset

DELIVERIES: Final = arrow_schema("deliveries")
MESSAGES: Final = arrow_schema("messages")
COPIES: Final = arrow_schema("copies")
GROUP_ROWS: Final = 10_000
"""The rows of a row group of these tables: a reader of one message reads a row group or two of each."""

_SHARES_PERCENT: Final = (50, 90, 99, 100)


@dataclass(frozen=True)
class DeliverySources:
    """What deliveries are made of, as Parquet files."""

    told: Place  # ``traces.TOLD``, in buckets
    transmissions: Place  # ``condensed.TRANSMISSIONS``, in buckets
    interests: Place  # ``interests.INTERESTS``
    published: Place  # ``published.build_published``, one part per share
    earliest: Place  # ``earliest.EARLIEST``, in buckets
    pairs: Place  # what was asked of every directed pair, for ``find_asked``: delay_ms
    incomplete: tuple[int, ...]  # nodes whose trace is missing or cut off
    captured: bool  # whether captures show what reached a host
    missing: Missing  # what the peers do not report


def build_deliveries(sources: DeliverySources, share: Share) -> Iterator[Tables]:
    """Make the rows of the ``deliveries``, ``messages`` and ``copies`` tables for a share of the messages.

    ``deliveries`` has one row per message and node other than its publisher, if the message was for the node when it
    was published, and the node had joined ``workload.settle_s`` before. A message with an expression is for the nodes
    that satisfy it. Any other message is for the subscribers of its topics. The delay is measured twice: by the logs,
    and by the captures alone. ``messages`` says how far each message came, and what it cost. ``copies`` has its copies.
    The rows of all three are in the order of messages, so that few row groups have those of one message.

    Yields:
        The tables of messages with at most ``PIECE_ROWS`` events, copies and subscribers together, or of one message.
    """
    messages = read_bucket(sources.published, PUBLISHED, share).sort_by("message_id")
    interests = read_parquet(sources.interests)
    staged = ((sources.told, TOLD), (sources.transmissions, TRANSMISSIONS), (sources.earliest, EARLIEST))
    rows = sum(bucket_dataset(path, schema, share).count_rows() for path, schema in staged)
    several = _plan_pieces(messages, interests, rows)
    for some in several:
        where = pc.field("message_id").isin(some["message_id"].combine_chunks()) if len(several) > 1 else None
        told, copies, bounds = (read_bucket(path, schema, share, where=where) for path, schema in staged)
        yield _build_piece(sources, some, interests, told, copies, bounds)


def _plan_pieces(messages: pa.Table, interests: pa.Table, rows: int) -> list[pa.Table]:
    """Divide messages into pieces, by their subscriptions and by the rows of all of them together."""
    topics = messages["topics"].combine_chunks()
    topic, wanted = numbers(pc.list_flatten(topics)), np.sort(numbers(interests["topic"]))
    subscribed = np.searchsorted(wanted, topic, "right") - np.searchsorted(wanted, topic, "left")
    weight = np.bincount(numbers(pc.list_parent_indices(topics)), subscribed, len(messages)).astype(np.int64)
    weight += -(-rows // max(len(messages), 1))
    before = np.cumsum(weight) - weight
    pieces: list[pa.Table] = []
    first = 0
    while first < len(messages) or not pieces:
        last = np.searchsorted(before + weight, before[first : first + 1].sum() + shares.PIECE_ROWS, "right")
        last = max(int(last), first + 1)
        pieces.append(messages.slice(first, last - first))
        first = last
    return pieces


def _build_piece(
    sources: DeliverySources,
    messages: pa.Table,
    interests: pa.Table,
    told: pa.Table,
    copies: pa.Table,
    bounds: pa.Table,
) -> dict[str, Rows]:
    row, node, topic = _find_expected(messages, interests)
    asked = messages.take(pa.array(row))
    key = [asked["message_id"], pa.array(node)]
    columns = {name: asked[name] for name in ("message_id", "publisher", "publish_ns")}
    columns |= {"node": key[1], "topic": pa.array(topic)}
    first, repeats = first_deliveries(told, key)
    columns |= {"delivered_ns": first["ts_ns"], "hops": first["hops"], "repeats": pa.array(repeats)}
    columns |= _count_arrivals(copies, key)
    columns["earliest_ns"] = bounds["earliest_ns"].take(find([bounds["message_id"], bounds["node"]], key))
    columns["known"] = _is_known(sources, columns, copies, key)
    columns["direct_delay_ms"] = find_asked(sources.pairs, "delay_ms", asked["publisher"], key[1], asked["publish_ns"])
    columns |= _delays(columns, _time_departures(copies, messages).take(pa.array(row)))
    deliveries = conform(columns, DELIVERIES)
    spread = {name: messages[name] for name in messages.column_names}
    message = numbers(find([messages["message_id"]], [copies["message_id"]]), len(messages))
    spread |= _count_reach(deliveries, messages) | _count_transmissions(copies, message, len(messages))
    tables = {"deliveries": deliveries, "messages": conform(spread, MESSAGES)}
    tables["copies"] = _order_copies(copies, message, len(messages))
    return {name: hide_columns(table, sources.missing) for name, table in tables.items()}


def _find_expected(messages: pa.Table, interests: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Find the nodes that each message was for: the message's row, the node, and the topic to which it subscribed.

    If a node subscribed to several topics of the message, the least counts. A node that satisfies a message's
    expression subscribes to at least one of its topics.
    """
    topics = messages["topics"].combine_chunks()
    row, topic = numbers(pc.list_parent_indices(topics)), numbers(pc.list_flatten(topics))
    interests = interests.sort_by([("topic", "ascending")])
    wanted = numbers(interests["topic"])
    first, last = np.searchsorted(wanted, topic, "left"), np.searchsorted(wanted, topic, "right")
    counts = last - first
    interest = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
    row, topic = np.repeat(row, counts), np.repeat(topic, counts)
    at_ns = numbers(pc.coalesce(messages["publish_ns"], messages["scheduled_ns"]), -1)[row]
    due_ns, to_ns = (numbers(interests[name])[interest] for name in ("due_ns", "to_ns"))
    node = numbers(interests["node"])[interest]
    asked = (due_ns <= at_ns) & (at_ns < to_ns) & (node != numbers(messages["publisher"], -1)[row])
    row, node, topic = row[asked], node[asked], topic[asked]
    asked = _satisfies(messages, interests, row, node)
    row, node, topic = row[asked], node[asked], topic[asked]
    pair, count = factorise(row, node)
    one = np.empty(count, np.int64)
    one[pair] = np.arange(len(pair))
    return row[one], node[one], numbers(Groups(pair, count).least(pa.array(topic)))


def _satisfies(messages: pa.Table, interests: pa.Table, row: Ints, node: Ints) -> Bools:
    """Return for each pair of a message's row and a node whether the node satisfies the message's expression, if any.

    The rows are in rising order, and the interests in the order of topics.
    """
    subscribers, satisfied = _Subscribers(interests), np.ones(len(row), np.bool_)
    at_ns = numbers(pc.coalesce(messages["publish_ns"], messages["scheduled_ns"]), -1).tolist()
    for each, expression in enumerate(messages["expression"].to_pylist()):
        if expression is not None:
            pairs = slice(*np.searchsorted(row, (each, each + 1)))
            found = find_members(expression, subscribers.of_expression(expression, at_ns[each]))
            satisfied[pairs] = np.isin(node[pairs], list_members(found))
    return satisfied


class _Subscribers:
    """The nodes to which messages on a topic are due, at any instant.

    Args:
        interests: ``interests.INTERESTS`` in the order of topics.
    """

    def __init__(self, interests: pa.Table) -> None:
        names = ("node", "topic", "due_ns", "to_ns")
        self._node, self._topic, self._due_ns, self._to_ns = (numbers(interests[name]) for name in names)

    def of_expression(self, expression: str, at_ns: int) -> dict[int, Bitset]:
        """Return these nodes for every topic in an expression."""
        topics = {topic for term in terms_of_topics(expression) for topic in term}
        return {topic: self._of_topic(topic, at_ns) for topic in topics}

    def _of_topic(self, topic: int, at_ns: int) -> Bitset:
        some = slice(*np.searchsorted(self._topic, (topic, topic + 1)))
        lasting = (self._due_ns[some] <= at_ns) & (at_ns < self._to_ns[some])
        return bitset(self._node[some][lasting].tolist())


def first_deliveries(told: pa.Table, key: Sequence[Column]) -> tuple[pa.Table, Ints]:
    """Return the first ``deliver`` of each pair of a message and a node, with nulls if there is none, and its repeats.

    Another program may not know from which neighbour a message came: its ``deliver`` counts without ``peer``.

    Args:
        told: rows of ``traces.TOLD``.
        key: message_id and node of the pairs, each pair once.
    """
    rows = told.filter(pc.field("event") == "deliver")
    pairs = len(key[0])
    pair = numbers(find(key, [rows["message_id"], rows["node"]]), pairs)
    first = find_first(pair, numbers(rows["ts_ns"]), pairs)
    return rows.take(pa.array(first.row, mask=first.row < 0)), first.repeats


def _count_arrivals(copies: pa.Table, key: list[Column]) -> dict[str, Column]:
    """Return how many copies each node read, and when the first of them was at its tap."""
    none = len(key[0])
    place = numbers(find(key, [copies["message_id"], copies["dst_node"]]), none)
    groups = Groups(place, none + 1)
    count = groups.count(valid(copies["log_recv_ns"]))[:none]
    return {"copies": pa.array(count), "wire_recv_ns": groups.least(copies["tap_rx_ns"])[:none]}


def _is_known(sources: DeliverySources, columns: dict[str, Column], copies: pa.Table, key: list[Column]) -> Column:
    """Return whether each delivery is known to be made or not, by the node's trace or because no copy came to its host.

    Without captures, any frame sent to the node may have reached it.
    """
    sent_to = valid(find([copies["message_id"], copies["dst_node"]], key))
    came = valid(columns["wire_recv_ns"]) if sources.captured else sent_to
    silent = np.isin(numbers(key[1]), sources.incomplete) & ~valid(columns["delivered_ns"])
    return pa.array(~(silent & came))


def _time_departures(copies: pa.Table, messages: pa.Table) -> pa.Array:
    """Return when the first copy of each message left its publisher's tap."""
    key = [messages["message_id"], messages["publisher"]]
    place = numbers(find(key, [copies["message_id"], copies["src_node"]]), len(messages))
    return Groups(place, len(messages) + 1).least(copies["tap_tx_ns"])[: len(messages)]


def _delays(columns: dict[str, Column], wire_send_ns: pa.Array) -> dict[str, Column]:
    nothing = pa.scalar(None, pa.float64())
    direct_ms = columns["direct_delay_ms"]
    latency_ms = _milliseconds(columns["publish_ns"], columns["delivered_ns"])
    on_wire_ms = _milliseconds(wire_send_ns, columns["wire_recv_ns"])
    return {
        "latency_ms": latency_ms,
        "least_latency_ms": _milliseconds(columns["publish_ns"], columns["earliest_ns"]),
        "wire_latency_ms": pc.if_else(pc.is_valid(columns["delivered_ns"]), on_wire_ms, nothing),
        "stretch": pc.divide(latency_ms, pc.if_else(pc.greater(direct_ms, 0), direct_ms, nothing)),
    }


def _milliseconds(since_ns: Column, to_ns: Column) -> Column:
    return pc.divide(pc.subtract(to_ns, since_ns).cast(pa.float64()), 1e6)


def _count_reach(deliveries: pa.Table, messages: pa.Table) -> dict[str, Column]:
    """Count the nodes each message was for and the nodes it reached, and find when it had reached a share of them."""
    message = numbers(find([messages["message_id"]], [deliveries["message_id"]]))
    expected = np.bincount(message, minlength=len(messages))
    latency_ms = deliveries["latency_ms"].to_numpy()
    known = valid(deliveries["latency_ms"])
    ordered = latency_ms[known][np.lexsort((latency_ms[known], message[known]))]
    counts = np.bincount(message[known], minlength=len(messages))
    first = np.cumsum(counts) - counts
    columns: dict[str, Column] = {"n_subscribers": pa.array(expected)}
    delivered = valid(deliveries["delivered_ns"])
    columns["n_delivered"] = pa.array(np.bincount(message[delivered], minlength=len(messages)))
    for percent in _SHARES_PERCENT:
        rank = np.ceil(expected * percent / 100).astype(np.int64) - 1
        reached = (rank >= 0) & (rank < counts)
        at = pa.array(first + rank, mask=~reached)
        columns[f"t{percent}_ms"] = pa.array(ordered).take(at)
    return columns


def _order_copies(copies: pa.Table, message: Ints, messages: int) -> pa.Table:
    """Return the copies of messages that were published, in the order of messages.

    Args:
        copies: ``TRANSMISSIONS``.
        message: (n,) the place of each copy's message; ``messages`` if it was not published.
        messages: how many messages there are.
    """
    order = np.argsort(message, kind="stable")
    return copies.select(COPIES.names).take(pa.array(order[: np.count_nonzero(message < messages)]))


def _count_transmissions(copies: pa.Table, message: Ints, messages: int) -> dict[str, Column]:
    """Count how often each message was sent, to how many nodes, and how many more times than that.

    For the arguments see ``_order_copies``.
    """
    sent = np.bincount(message, minlength=messages + 1)[:-1]
    read = valid(copies["log_recv_ns"], copies["dst_node"])
    pair, count = factorise(message[read], numbers(copies["dst_node"])[read])
    one = np.empty(count, np.int64)
    one[pair] = message[read]
    reached = np.bincount(one, minlength=messages + 1)[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        redundancy = sent / reached - 1
    columns = {"n_transmissions": pa.array(sent), "n_reached": pa.array(reached)}
    return columns | {"redundancy": pa.array(redundancy, mask=reached == 0)}
