"""Find the nodes that messages with expressions are for, and make the table ``groups``: reach and cost."""

from collections import deque
from collections.abc import Collection
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metrics.asked import direct_delays_ms
from metrics.facts.groups import GroupMessage, Rate
from metrics.facts.population import TracedPopulation
from metrics.measures.steiner import MOST_HOSTS, shortest_paths
from metrics.pcap.flows import factorise
from metrics.rundir import RunDir
from metrics.storage import Place
from metrics.storage.parquet import read_parquet
from metrics.tables import interests
from metrics.tables.columns import Column, find, numbers
from metrics.tables.first_deliveries import find_first
from metrics.tables.hops import HOPS
from metrics.tables.schemas import GROUPS, arrow_schema
from metrics.tables.staged import read_staged
from metrics.tables.traces import CHANGES, HANDLED, TOLD
from peer.core.bitset import Bitset, bitset
from peer.core.frames import Data
from peer.protocols.registry import PROTOCOLS
from peer.trace import TraceEvent


def predicted_rate(run: RunDir) -> Rate | None:
    """Return the rate of false positives that the protocol of a run predicts; None if it predicts none."""
    protocol = PROTOCOLS.get(run.experiment["protocol"])
    if protocol is None or protocol.false_positive_rate is None:
        return None
    return cache(partial(protocol.false_positive_rate, run.experiment[protocol.section]))


class GroupSources(Struct, frozen=True):
    """The sources of the ``groups`` table, as Parquet files and as tables."""

    published: Place  # ``published.build_published``
    told: Place  # ``traces.TOLD``
    handled: Place  # ``traces.HANDLED``
    hops: Place  # the ``hops`` table
    starters: pa.Table  # ``interests.STARTERS``
    changes: Place  # ``traces.CHANGES``


class Replay:
    """The nodes that are up and their topics, at instants in rising order, by the traces.

    Changes of an instant count at that instant.

    Args:
        starters: ``interests.STARTERS``.
        changes: the events of ``interests.CHANGES``: event, node, ts_ns, topics and reason.
        nodes: the nodes of the run; a trace may name others.
    """

    def __init__(self, starters: pa.Table, changes: pa.Table, nodes: Collection[int]) -> None:
        up = starters.filter(starters["up"])
        self._population = TracedPopulation(dict(zip(up["node"].to_pylist(), up["topics"].to_pylist(), strict=True)))
        known = changes.filter(pc.is_in(changes["node"], pa.array(sorted(nodes), pa.int32())))
        ordered = known.sort_by([("ts_ns", "ascending")])
        columns = (ordered[name].to_pylist() for name in ("event", "ts_ns", "node", "topics", "reason"))
        self._changes = deque(zip(*columns, strict=True))

    def advance(self, at_ns: int) -> TracedPopulation:
        """Return the population at an instant, which is not before the instants of earlier calls."""
        while self._changes and self._changes[0][1] <= at_ns:
            event, ts_ns, node, topics, reason = self._changes.popleft()
            self._population.take(TraceEvent(event, ts_ns, node, topics=topics, reason=reason))
        return self._population


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
    is_change, names = pc.field("event").isin(interests.CHANGES), ["event", "ts_ns", "node", "topics", "reason"]
    replay = partial(Replay, sources.starters, read_staged(sources.changes, CHANGES, names, is_change), run.nodes)
    found = _begin(messages, replay(), bitset(set(run.nodes) - adversaries), rate)
    bad = pa.array(sorted(adversaries), pa.int64())
    _count_copies(found, messages, sources, bad)
    _deliver(found, _first_deliveries(messages, sources, bad), replay())
    rows: list[dict[str, Any]] = [
        {"message_id": number, "expression": message.expression} | message.summarise(lengths, hosts.__getitem__)
        for number, message in zip(messages["message_id"].to_pylist(), found, strict=True)
    ]
    return pa.Table.from_pylist(rows, arrow_schema(GROUPS))


def _begin(messages: pa.Table, replay: Replay, honest: Bitset, rate: Rate | None) -> list[GroupMessage]:
    """Return every message at its publication."""
    at_ns = numbers(pc.coalesce(messages["publish_ns"], messages["scheduled_ns"]), -1)
    expressions, publishers = messages["expression"].to_pylist(), messages["publisher"].to_pylist()
    found: dict[int, GroupMessage] = {}
    for place in np.argsort(at_ns, kind="stable").tolist():
        population = replay.advance(int(at_ns[place]))
        found[place] = GroupMessage.begin(expressions[place], publishers[place], population, honest, rate)
    return [found[place] for place in range(len(messages))]


def _count_copies(found: list[GroupMessage], messages: pa.Table, sources: GroupSources, bad: pa.Array) -> None:
    """Record the relays of each message, and its copies with the delays of their links."""
    relayed = read_staged(sources.handled, HANDLED, ["node", "message_id"], pc.field("first_event") == "relay")
    relayed = _of_messages(relayed, messages, "node", bad)
    names = ["message_id", "dst_node", "asked_delay_ms"]
    copied = (pc.field("kind") == Data.kind) & pc.field("at_relay").is_valid()
    copies = _of_messages(read_staged(sources.hops, HOPS, names, copied), messages, "dst_node", bad)
    relays: list[list[int]] = [[] for _ in found]
    for place, node in zip(relayed["place"].to_pylist(), relayed["node"].to_pylist(), strict=True):
        relays[place].append(node)
    of_copy = numbers(copies["place"])
    count = np.bincount(of_copy, minlength=len(found)).tolist()
    delay_ms = np.bincount(of_copy, copies["asked_delay_ms"].to_numpy(), len(found)).tolist()
    for message, nodes, number, total_ms in zip(found, relays, count, delay_ms, strict=True):
        message.relay(bitset(nodes))
        message.copies = number
        message.delay_ns = None if np.isnan(total_ms) else round(total_ms * 1e6)


def _first_deliveries(messages: pa.Table, sources: GroupSources, bad: pa.Array) -> pa.Table:
    """Return the first delivery of each message to each node, in order of time: place, node, ts_ns."""
    said = pc.field("event") == "deliver"
    rows = read_staged(sources.told, TOLD, ["node", "message_id", "ts_ns"], said)
    rows = _of_messages(rows, messages, "node", bad)
    pair, pairs = factorise(numbers(rows["place"]), numbers(rows["node"]))
    first = find_first(pair, numbers(rows["ts_ns"]), pairs).row
    return rows.take(pa.array(first)).sort_by([("ts_ns", "ascending")])


def _deliver(found: list[GroupMessage], deliveries: pa.Table, replay: Replay) -> None:
    """Record the nodes that handed messages to their applications."""
    columns = (deliveries[name].to_pylist() for name in ("place", "node", "ts_ns"))
    for place, node, ts_ns in zip(*columns, strict=True):
        found[place].deliver(node, replay.advance(ts_ns).subscribers)


def _of_messages(rows: pa.Table, messages: pa.Table, node: str, left_out: pa.Array) -> pa.Table:
    """Return the rows of some messages at some nodes, with the message's ``place``."""
    place: Column = find([messages["message_id"]], [rows["message_id"]])
    chosen = pc.and_(pc.is_valid(place), pc.invert(pc.is_in(rows[node].cast(pa.int64()), left_out)))
    return rows.append_column("place", place).filter(chosen)
