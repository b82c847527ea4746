"""Messages, and every (message, subscriber) pair that ought to have been a delivery."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.json as pj
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from metrics.pcap.flows import factorise
from metrics.pcap.walk import Ints
from metrics.tables.columns import Column, Groups, conform, find, find_asked, numbers, valid
from metrics.tables.hops import HOPS
from metrics.tables.schemas import arrow_schema, schema_of
from metrics.tables.shares import Share
from metrics.tables.traces import EVENTS
from peer.core.frames import Data
from peer.trace import JOINED

DELIVERIES: Final = arrow_schema("deliveries")
MESSAGES: Final = arrow_schema("messages")
PUBLISHED: Final = pa.schema([MESSAGES.field(index) for index in range(6)])
_SCHEDULE: Final = schema_of(
    "at_ns bigint, action string, message_id bigint, topics array<bigint>, payload_bytes bigint"
)
_SHARES_PERCENT: Final = (50, 90, 99, 100)
_FOREVER = 2**63 - 1


@dataclass(frozen=True)
class DeliverySources:
    """What deliveries are made of, as Parquet."""

    events: Path  # ``traces.EVENTS``
    hops: Path  # the ``hops`` table
    interests: Path  # ``subscriptions``
    published: Path  # ``build_published``
    pairs: Path  # what was asked of every directed pair, for ``find_asked``: delay_ms

    @property
    def rows(self) -> int:
        """How many rows the largest of them has."""
        return ds.dataset(self.hops, schema=HOPS).count_rows()  # type: ignore[no-any-return]


def build_published(schedule: Path, events: Path, zero_ns: int, share: Share) -> dict[str, pa.Table]:
    """Every message that was published, by its publisher's word or, where that trace is lost, by a receiver's.

    Args:
        schedule: the run's schedule.jsonl.
        events: ``traces.EVENTS`` as Parquet.
        zero_ns: the instant from which the schedule counts.
        share: by the message's number.
    """
    asked = _shared(_scheduled(schedule), "message_id", share)
    named = pc.field("message_id").is_valid()
    said = ["event", "message_id", "ts_ns", "topics", "len_bytes"]
    words = ds.dataset(events, schema=EVENTS).to_table(
        columns=said, filter=named & pc.field("event").isin(["publish", "deliver"])
    )
    words = _shared(words, "message_id", share)
    is_publish = pc.equal(words["event"], "publish")
    told = words.filter(is_publish)
    received = words.filter(pc.invert(is_publish))["message_id"]
    known = pa.chunked_array([*asked["message_id"].chunks, *told["message_id"].chunks], pa.int64()).unique()
    plan, word = asked.take(find([asked["message_id"]], [known])), told.take(find([told["message_id"]], [known]))
    columns = {
        "message_id": known,
        "topics": pc.coalesce(word["topics"], plan["topics"]),
        "publisher": pc.shift_right(known, 32).cast(pa.int32()),
        "scheduled_ns": pc.add(plan["at_ns"], zero_ns),
        "publish_ns": word["ts_ns"],
        "payload_bytes": pc.coalesce(word["len_bytes"], plan["payload_bytes"]),
    }
    happened = pc.or_(pc.is_valid(word["ts_ns"]), pc.is_in(known, received.combine_chunks()))
    return {"published": conform(columns, PUBLISHED).filter(happened)}


def _scheduled(schedule: Path) -> pa.Table:
    """The publications that were asked for."""
    if not schedule.stat().st_size:
        return _SCHEDULE.empty_table()
    form = pj.ParseOptions(explicit_schema=_SCHEDULE, unexpected_field_behavior="ignore")
    actions = pj.read_json(schedule, parse_options=form)
    return actions.filter(pc.equal(actions["action"], "publish"))


def subscriptions(overlay: DataFrame, events: DataFrame, settle_ns: int) -> DataFrame:
    """Intervals in which a node subscribes to a topic: node, topic, from_ns, to_ns (half open).

    Deliveries are expected from ``due_ns`` on: at least ``settle_ns`` after the node has joined.

    Not made with ``peer.core.schedule.Population``: each ``join`` and ``leave`` event names the topics that it begins
    or ends, so that the rows of each node and topic suffice and Spark can distribute them.
    """
    initial = overlay.select(F.explode("nodes").alias("spec")).select(
        F.col("spec.node").cast("int").alias("node"),
        F.explode("spec.topics").alias("topic"),
        F.lit(0).cast("bigint").alias("ts_ns"),
        F.lit(True).alias("joins"),
        F.lit(0).cast("bigint").alias("due_ns"),
    )
    is_join = F.col("event") == "join"
    settled_ns = F.when(is_join & (F.col("reason") == JOINED), F.col("ts_ns") + settle_ns)
    joined = F.last(settled_ns, ignorenulls=True).over(Window.partitionBy("node").orderBy("ts_ns"))
    changes = (
        events.where(F.col("event").isin("join", "leave"))
        .withColumn("due_ns", F.greatest("ts_ns", joined))
        .select("node", F.explode("topics").alias("topic"), "ts_ns", is_join.alias("joins"), "due_ns")
    )
    following = F.lead("ts_ns", 1, _FOREVER).over(Window.partitionBy("node", "topic").orderBy("ts_ns"))
    spans = initial.unionByName(changes).withColumn("to_ns", following)
    return spans.where("joins").select("node", "topic", F.col("ts_ns").alias("from_ns"), "to_ns", "due_ns")


def build_deliveries(sources: DeliverySources, share: Share) -> dict[str, pa.Table]:
    """The rows of the ``deliveries`` table for a share of the nodes.

    A row per message and node other than its publisher that subscribed to one of its topics when it was published, and
    had joined ``workload.settle_s`` before. The delay is taken twice: from the logs, and from the captures alone.
    """
    messages = pq.read_table(sources.published)
    row, node, topic = _expected(messages, _shared(pq.read_table(sources.interests), "node", share))
    told = messages.take(pa.array(row))
    key = [told["message_id"], pa.array(node)]
    columns = {name: told[name] for name in ("message_id", "publisher", "publish_ns")}
    columns |= {"node": key[1], "topic": pa.array(topic)}
    columns |= _handed_on(sources.events, share, key)
    copies = _copies(sources.hops)
    columns |= _arrived(_shared(copies, "dst_node", share), key)
    columns["direct_delay_ms"] = find_asked(sources.pairs, "delay_ms", told["publisher"], key[1])
    columns |= _delays(columns, _left(copies, messages).take(pa.array(row)))
    return {"deliveries": conform(columns, DELIVERIES)}


def _shared(rows: pa.Table, key: str, share: Share) -> pa.Table:
    return rows.filter(pa.array(numbers(rows[key], -1) % share.count == share.number))


def _expected(messages: pa.Table, interests: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Whom each message was for: its row, the node, and the least of the topics that it wanted it for."""
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
    pair, count = factorise(row, node)
    one = np.empty(count, np.int64)
    one[pair] = np.arange(len(pair))
    return row[one], node[one], numbers(Groups(pair, count).least(pa.array(topic)))


def _handed_on(events: Path, share: Share, key: list[Column]) -> dict[str, Column]:
    """When each node handed each message to its application first, and after how many hops."""
    said = ["node", "message_id", "ts_ns", "hops"]
    delivered = (pc.field("event") == "deliver") & pc.field("peer").is_valid()
    rows = _shared(ds.dataset(events, schema=EVENTS).to_table(columns=said, filter=delivered), "node", share)
    rows = rows.sort_by([("ts_ns", "ascending")])
    first = rows.take(find([rows["message_id"], rows["node"]], key))
    return {"delivered_ns": first["ts_ns"], "hops": first["hops"]}


def _copies(hops: Path) -> pa.Table:
    names = ["message_id", "src_node", "dst_node", "tap_tx_ns", "tap_rx_ns", "log_recv_ns"]
    return ds.dataset(hops, schema=HOPS).to_table(columns=names, filter=pc.field("kind") == Data.kind)


def _arrived(copies: pa.Table, key: list[Column]) -> dict[str, Column]:
    """How many copies each node read, and when the first of them was at its tap."""
    none = len(key[0])
    place = numbers(find(key, [copies["message_id"], copies["dst_node"]]), none)
    groups = Groups(place, none + 1)
    count = groups.count(valid(copies["log_recv_ns"]))[:none]
    return {"copies": pa.array(count), "wire_recv_ns": groups.least(copies["tap_rx_ns"])[:none]}


def _left(copies: pa.Table, messages: pa.Table) -> pa.Array:
    """When the first copy of each message left its publisher's tap."""
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
        "wire_latency_ms": pc.if_else(pc.is_valid(columns["delivered_ns"]), on_wire_ms, nothing),
        "stretch": pc.divide(latency_ms, pc.if_else(pc.greater(direct_ms, 0), direct_ms, nothing)),
    }


def _milliseconds(since_ns: Column, to_ns: Column) -> Column:
    return pc.divide(pc.subtract(to_ns, since_ns).cast(pa.float64()), 1e6)


def build_messages(sources: DeliverySources, deliveries: Path, share: Share) -> dict[str, pa.Table]:
    """The rows of the ``messages`` table for a share of the messages: how far each came, and what it cost.

    Args:
        sources: see there.
        deliveries: the ``deliveries`` table.
        share: by the message's number.
    """
    messages = _shared(pq.read_table(sources.published), "message_id", share)
    columns = {name: messages[name] for name in messages.column_names}
    columns |= _spread(_shared(pq.read_table(deliveries), "message_id", share), messages)
    columns |= _cost(_shared(_copies(sources.hops), "message_id", share), messages)
    return {"messages": conform(columns, MESSAGES)}


def _spread(deliveries: pa.Table, messages: pa.Table) -> dict[str, Column]:
    """How many each message was for, how many it came to, and when it had come to a share of them."""
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


def _cost(copies: pa.Table, messages: pa.Table) -> dict[str, Column]:
    """How often each message was sent, to how many nodes, and how many more times than that."""
    message = numbers(find([messages["message_id"]], [copies["message_id"]]), len(messages))
    sent = np.bincount(message, minlength=len(messages) + 1)[:-1]
    read = valid(copies["log_recv_ns"], copies["dst_node"])
    pair, count = factorise(message[read], numbers(copies["dst_node"])[read])
    one = np.empty(count, np.int64)
    one[pair] = message[read]
    reached = np.bincount(one, minlength=len(messages) + 1)[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        redundancy = sent / reached - 1
    columns = {"n_transmissions": pa.array(sent), "n_reached": pa.array(reached)}
    return columns | {"redundancy": pa.array(redundancy, mask=reached == 0)}
