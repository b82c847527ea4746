"""Find the nodes that messages with expressions are for, and make the table ``groups``: reach and cost."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metrics.asked import direct_delays_ms
from metrics.facts.deliveries import find_first
from metrics.facts.groups import GroupMessage, Rate, predict
from metrics.measures.steiner import MOST_HOSTS, shortest_paths
from metrics.pcap.flows import factorise
from metrics.pcap.walk import Bools, Ints
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables.columns import Column, find, numbers
from metrics.tables.hops import HOPS
from metrics.tables.schemas import GROUPS, arrow_schema
from metrics.tables.staged import read_staged
from metrics.tables.traces import HANDLED, TOLD
from peer.core.addressing.keywords import find_members, terms_of_topics
from peer.core.bitset import Bitset, bitset, members
from peer.core.frames import Data
from peer.protocols.registry import PROTOCOLS


class Subscribers:
    """The subscribers of topics at any instant.

    Args:
        intervals: the intervals of ``interests.INTERESTS``: node, topic, to_ns, and ``since``.
        since: the column with the instants from which the intervals count.
    """

    def __init__(self, intervals: pa.Table, since: str) -> None:
        ordered = intervals.sort_by([("topic", "ascending")])
        self._node, self._topic, self._since_ns, self._to_ns = (
            numbers(ordered[name]) for name in ("node", "topic", since, "to_ns")
        )

    def of_topic(self, topic: int, at_ns: int) -> Ints:
        """Return the nodes that subscribe to a topic, in no order."""
        first, last = np.searchsorted(self._topic, topic, "left"), np.searchsorted(self._topic, topic, "right")
        nodes: Ints = self._node[first:last][self._last(at_ns, slice(first, last))]
        return nodes

    def count_topics(self, nodes: int, at_ns: int) -> Ints:
        """Return how many topics each node subscribes to, (nodes,)."""
        return np.bincount(self._node[self._last(at_ns, slice(None))], minlength=nodes)

    def of_expression(self, expression: str, at_ns: int) -> dict[int, Bitset]:
        """Return the subscribers of every topic in an expression."""
        topics = {topic for term in terms_of_topics(expression) for topic in term}
        return {topic: bitset(self.of_topic(topic, at_ns).tolist()) for topic in topics}

    def satisfying(self, expression: str, at_ns: int) -> Bitset:
        """Return the nodes that satisfy an expression."""
        return find_members(expression, self.of_expression(expression, at_ns))

    def _last(self, at_ns: int, some: slice) -> Bools:
        """Return which of some intervals contain an instant."""
        inside: Bools = (self._since_ns[some] <= at_ns) & (at_ns < self._to_ns[some])
        return inside


def predicted_rate(run: RunDir) -> Rate | None:
    """Return the rate of false positives that the protocol of a run predicts; None if it predicts none."""
    protocol = PROTOCOLS.get(run.experiment["protocol"])
    if protocol is None or protocol.false_positive_rate is None:
        return None
    return cache(partial(protocol.false_positive_rate, run.experiment[protocol.section]))


class GroupSources(Struct, frozen=True):
    """The sources of the ``groups`` table, as Parquet files and as tables."""

    published: Place  # ``deliveries.build_published``
    told: Place  # ``traces.TOLD``
    handled: Place  # ``traces.HANDLED``
    hops: Place  # the ``hops`` table
    interests: pa.Table  # ``interests.INTERESTS``
    uptimes: pa.Table  # ``interests.UPTIMES``


class _Receipts(Struct):
    """The copies of one message at honest nodes other than the publisher, by the traces and the hops."""

    delivered: dict[int, int]  # node -> when
    relays: Bitset
    copies: int
    delay_ns: int | None


def build_groups(run: RunDir, sources: GroupSources, adversaries: frozenset[int], rate: Rate | None) -> pa.Table:
    """Return the ``groups`` table: one row per message with an expression. Only honest nodes count.

    Args:
        run: the run.
        sources: what the table is made of.
        adversaries: the nodes that misbehave.
        rate: predicts false positives; None = the protocol does not.
    """
    messages = read_parquet(sources.published)
    messages = messages.filter(pc.is_valid(messages["expression"])).sort_by([("message_id", "ascending")])
    hosts = {place.node: place.host for place in run.plan.placement}
    delays_ms = direct_delays_ms(run, MOST_HOSTS) if len(messages) else None
    lengths = None if delays_ms is None else shortest_paths(delays_ms)
    subscribers = Subscribers(sources.interests, "from_ns")
    node, from_ns, to_ns = (numbers(sources.uptimes[name]) for name in ("node", "from_ns", "to_ns"))
    honest = bitset(set(run.nodes) - adversaries)
    rows: list[dict[str, Any]] = []
    for message, receipts in zip(messages.to_pylist(), _receipts(messages, sources, adversaries), strict=True):
        at_ns = message["scheduled_ns"] if message["publish_ns"] is None else message["publish_ns"]
        expression, publisher = message["expression"], message["publisher"]
        topics = subscribers.of_expression(expression, at_ns)
        up = bitset(node[(from_ns <= at_ns) & (at_ns < to_ns)].tolist())
        found = GroupMessage.begin(expression, publisher, find_members(expression, topics), up & honest, honest)
        if rate is not None:
            found.predicted = predict(rate, expression, _count_topics(found.others, subscribers, at_ns), topics)
        found.copies, found.delay_ns = receipts.copies, receipts.delay_ns
        found.relay(receipts.relays)
        for each, delivered_ns in receipts.delivered.items():
            found.deliver(each, partial(subscribers.satisfying, expression, delivered_ns))
        identity = {"message_id": message["message_id"], "expression": expression}
        rows.append(identity | found.summarise(lengths, hosts.__getitem__))
    return pa.Table.from_pylist(rows, arrow_schema(GROUPS))


def _receipts(messages: pa.Table, sources: GroupSources, adversaries: frozenset[int]) -> Iterator[_Receipts]:
    """Yield what became of each message, in order."""
    bad = pa.array(sorted(adversaries), pa.int64())
    said = pc.field("event") == "deliver"
    delivered = read_staged(sources.told, TOLD, ["node", "message_id", "ts_ns"], said)
    delivered = _of_messages(delivered, messages, "node", bad)
    pair, pairs = factorise(numbers(delivered["place"]), numbers(delivered["node"]))
    delivered = delivered.take(pa.array(find_first(pair, numbers(delivered["ts_ns"]), pairs).row))
    relayed = read_staged(sources.handled, HANDLED, ["node", "message_id"], pc.field("first_event") == "relay")
    relayed = _of_messages(relayed, messages, "node", bad)
    names = ["message_id", "dst_node", "asked_delay_ms"]
    copied = (pc.field("kind") == Data.kind) & pc.field("at_relay").is_valid()
    copies = read_staged(sources.hops, HOPS, names, copied)
    copies = _of_messages(copies, messages, "dst_node", bad)
    found = [_Receipts({}, 0, 0, 0) for _ in range(len(messages))]
    relays: list[list[int]] = [[] for _ in found]
    publishers = messages["publisher"].to_pylist()
    lines = (delivered[name].to_pylist() for name in ("place", "node", "ts_ns"))
    for place, node, ts_ns in zip(*lines, strict=True):
        if node != publishers[place]:
            found[place].delivered[node] = ts_ns
    for place, node in zip(relayed["place"].to_pylist(), relayed["node"].to_pylist(), strict=True):
        if node != publishers[place]:
            relays[place].append(node)
    of_copy = numbers(copies["place"])
    count = np.bincount(of_copy, minlength=len(found)).tolist()
    delay_ms = np.bincount(of_copy, copies["asked_delay_ms"].to_numpy(), len(found)).tolist()
    for each, of_message, number, total_ms in zip(found, relays, count, delay_ms, strict=True):
        each.relays, each.copies = bitset(of_message), number
        each.delay_ns = None if np.isnan(total_ms) else round(total_ms * 1e6)
        yield each


def _of_messages(rows: pa.Table, messages: pa.Table, node: str, left_out: pa.Array) -> pa.Table:
    """Return the rows of some messages at some nodes, with the message's ``place``."""
    place: Column = find([messages["message_id"]], [rows["message_id"]])
    chosen = pc.and_(pc.is_valid(place), pc.invert(pc.is_in(rows[node].cast(pa.int64()), left_out)))
    return rows.append_column("place", place).filter(chosen)


def _count_topics(nodes: Bitset, subscribers: Subscribers, at_ns: int) -> dict[int, Bitset]:
    """Return some nodes by how many topics they subscribe to."""
    numbered = np.fromiter(members(nodes), np.int64)
    own = subscribers.count_topics(1 + int(numbered.max(initial=0)), at_ns)[numbered]
    return {count: bitset(numbered[own == count].tolist()) for count in np.unique(own).tolist()}
