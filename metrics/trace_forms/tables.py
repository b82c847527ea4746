"""Makes tables of a run that Trellis did not make: what its traces show, by the kernels of ``metrics.tables``.

There is no plan, no schedule, no capture and no underlay. Columns that would need them are null. If nothing is known of
a table, it is not written.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from metrics.executors import HERE, opened
from metrics.pcap.flows import factorise
from metrics.rundir.files import table_file
from metrics.storage.parquet import read_parquet
from metrics.tables.columns import Column, Groups, conform, find, group_rows, numbers, says, valid
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.deliveries import DELIVERIES, MESSAGES, DeliverySources, build_deliveries
from metrics.tables.dimensions import build_subscriptions
from metrics.tables.interests import STARTERS, build_interests
from metrics.tables.links import build_links, build_physical_links
from metrics.tables.logs import Logs
from metrics.tables.published import PublishedSources, build_published, stage_schedule
from metrics.tables.schemas import arrow_schema
from metrics.tables.shares import Rows, Share, write_share
from metrics.tables.staged import read_staged, temporary_folder
from metrics.tables.timespans import SECOND_NS
from metrics.tables.traces import CHANGES, FRAMES, FURTHER, TOLD, Staging
from peer.core.frames import Data
from peer.files import TRACE_FOLDER

CONTROL: Final = arrow_schema("control")

_COSTS: Final = ("n_transmissions", "n_reached", "redundancy")
"""Columns of ``messages`` that need every copy that was sent."""


class Told(Struct, frozen=True):
    """What the traces can show.

    Attributes:
        spans: the first and last instant of each node that wrote a trace.
        unplanned: messages whose publication is in no trace: the instant of their first sight, their number, and their
            topics, as actions of a schedule.
        nobody: the number in place of a publisher that is not known.
        events: the events that the traces could have. Without ``send``, nothing is known about transmissions and
            control frames; without ``duplicate``, nothing about copies.
    """

    spans: Mapping[int, tuple[int, int]]
    unplanned: tuple[dict[str, Any], ...]
    nobody: int
    events: frozenset[str]

    @property
    def span_ns(self) -> tuple[int, int]:
        """From the first event to just after the last one."""
        firsts, lasts = zip(*self.spans.values(), strict=True)
        return min(firsts), max(lasts) + 1


def write_tables(folder: Path, told: Told) -> dict[str, int]:
    """Make the tables of the traces in a folder, below ``tables`` there.

    Args:
        folder: has our traces; ``tables`` must not exist in it.
        told: what the traces can show.

    Returns:
        The number of subscriptions that only deliveries show (``inferred_subscriptions``), and the numbers of
        ``firsts`` and ``duplicates`` among the copies that nodes read.
    """
    tables = folder / "tables"
    tables.mkdir()
    with temporary_folder(tables, ".staging-") as place, opened(HERE) as executor:
        staging = Path(str(place))
        Logs(executor, staging).read(folder / TRACE_FOLDER, Staging(staging, traced=False, ahead_ns={}, addresses={}))
        counts: dict[str, int] = {}
        for name, rows in _build(staging, told, counts):
            (tables / table_file(name)).mkdir()
            write_share({name: rows}, {name: tables / table_file(name)}, Share())
    return counts


def _build(staging: Path, told: Told, counts: dict[str, int]) -> Iterator[tuple[str, Rows]]:
    """Yield each table that the traces have facts for, by name."""
    changes, heard = read_staged(staging / "changes", CHANGES), read_staged(staging / "told", TOLD)
    further = read_staged(staging / "further", FURTHER)
    counts["firsts"], counts["duplicates"] = len(_read_first(heard)), int(says(further["event"], "duplicate").sum())
    starters = find_starters(heard, changes)
    counts["inferred_subscriptions"] = pc.sum(pc.list_value_length(starters["topics"])).as_py() or 0
    interests = build_interests(starters, changes, 0)
    yield "subscriptions", build_subscriptions(interests, *told.span_ns)
    if "add_peer" in told.events:
        yield "physical_links", (physical := build_physical_links(changes, told.span_ns[1]))
    else:
        physical = arrow_schema("physical_links").empty_table()
    if "graft" in told.events:
        yield "links", build_links(changes, physical, told.span_ns[1])
    frames = read_staged(staging / "frames", FRAMES)
    if "send" in told.events:
        yield "control", build_control(frames, told.span_ns[0])
        copies = pair_copies(frames.filter((pc.field("kind") == Data.kind) & pc.field("message_id").is_valid()))
    else:
        copies = count_copies(heard, further)
    yield from _build_messages(staging, told, interests, copies).items()


def _build_messages(staging: Path, told: Told, interests: pa.Table, copies: pa.Table) -> dict[str, pa.Table]:
    """Return the tables ``messages`` and ``deliveries``; unknown values are null."""
    (staging / "planned").mkdir()
    stage_schedule(iter(told.unplanned), staging / "planned", 1)
    said = PublishedSources(staging / "planned", staging / "told", staging / "mentions")
    made = build_published(said, 0, Share())
    inputs = {"interests": interests, "published": made["published"], "transmissions": copies}
    for name, rows in inputs.items():
        (staging / name).mkdir()
        pq.write_table(rows, staging / name / "part-0.parquet")
    (staging / "pairs").mkdir()
    np.save(staging / "pairs" / "delay_ms.npy", np.full((1, 1), np.nan))  # nothing was asked of any pair
    (staging / "earliest").mkdir()  # without captures no packet bounds a delivery
    places = {name: staging / name for name in ("told", "transmissions", "interests", "published", "earliest", "pairs")}
    sources = DeliverySources(**places, incomplete=(), captured=False, missing=frozenset())
    pieces = [*build_deliveries(sources, Share())]
    deliveries, messages = (pa.concat_tables([piece[name] for piece in pieces]) for name in ("deliveries", "messages"))
    return {"deliveries": _clear_deliveries(deliveries, messages, told), "messages": _clear_messages(messages, told)}


def _clear_deliveries(rows: pa.Table, messages: pa.Table, told: Told) -> pa.Table:
    """Return deliveries without unknown values: copies, publishers, and what happened while a node traced nothing."""
    columns = {name: rows[name] for name in rows.column_names} | {"publisher": _publishers(rows, told)}
    if not told.events & {"send", "duplicate"}:
        columns["copies"] = pa.nulls(len(rows), pa.int64())
    place = find([messages["message_id"]], [rows["message_id"]])
    at_ns = numbers(pc.coalesce(messages["publish_ns"], messages["scheduled_ns"]).take(place))
    spans = np.array([told.spans[node] for node in rows["node"].to_pylist()], np.int64).reshape(-1, 2)
    first_ns, last_ns = spans.T
    traced = (first_ns <= at_ns) & (at_ns < last_ns)
    columns["known"] = pa.array(traced | valid(rows["delivered_ns"]))
    return conform(columns, DELIVERIES)


def _clear_messages(rows: pa.Table, told: Told) -> pa.Table:
    columns: dict[str, Column] = {name: rows[name] for name in rows.column_names}
    columns |= {"publisher": _publishers(rows, told), "scheduled_ns": pa.nulls(len(rows), pa.int64())}
    if "send" not in told.events:
        columns |= {name: pa.nulls(len(rows)) for name in _COSTS}
    return conform(columns, MESSAGES)


def _publishers(rows: pa.Table, told: Told) -> Column:
    return pc.if_else(pc.equal(rows["publisher"], told.nobody), pa.scalar(None, pa.int32()), rows["publisher"])


def find_starters(heard: pa.Table, changes: pa.Table) -> pa.Table:
    """Return ``STARTERS``: the topics to which nodes subscribed before their trace began.

    A delivery, or an end of the subscription, before any beginning shows such a subscription.

    Args:
        heard: ``traces.TOLD``.
        changes: ``traces.CHANGES``.
    """
    shown = pa.concat_tables([_by_topic(_read_first(heard)), _by_topic(changes.filter(pc.field("event") == "leave"))])
    begun = _by_topic(changes.filter(pc.field("event") == "join"))
    group, pairs = group_rows(pa.concat_tables([shown, begun]), "node", "topic")
    at_ns = np.concatenate([numbers(shown["ts_ns"]), numbers(begun["ts_ns"])])
    is_shown = np.arange(len(group)) < len(shown)
    groups = Groups(group, len(pairs))
    first_shown, first_begun = (numbers(groups.least(pa.array(at_ns), among), 2**62) for among in (is_shown, ~is_shown))
    before = pairs.filter(pa.array(first_shown < first_begun)).group_by("node").aggregate([("topic", "list")])
    return pa.table([before["node"], before["topic_list"], pa.repeat(True, len(before))], schema=STARTERS)


def _read_first(heard: pa.Table) -> pa.Table:
    """Return the first copies that nodes read of messages; a publisher's delivery of its own message is not one."""
    is_own = pc.equal(heard["node"].cast(pa.int64()), pc.shift_right(heard["message_id"], 32))
    return heard.filter(pc.and_(pc.equal(heard["event"], "deliver"), pc.invert(pc.fill_null(is_own, fill_value=False))))


def _by_topic(rows: pa.Table) -> pa.Table:
    """Return a row per topic: node, ts_ns, topic."""
    rows = rows.combine_chunks()
    topics = rows["topics"].combine_chunks() if len(rows) else pa.array([], pa.list_(pa.int64()))
    named = rows.select(["node", "ts_ns"]).take(pc.list_parent_indices(topics))
    return named.append_column("topic", pc.list_flatten(topics))


def pair_copies(frames: pa.Table) -> pa.Table:
    """Return ``TRANSMISSIONS`` by the traces of both ends: a message's n-th send and n-th receipt between two nodes.

    Args:
        frames: ``traces.FRAMES`` of messages.
    """
    sent = says(frames["event"], "send")
    node, peer = (numbers(frames[name], -1) for name in ("node", "peer"))
    ends = {"src_node": np.where(sent, node, peer), "dst_node": np.where(sent, peer, node)}
    key, _ = factorise(numbers(frames["message_id"]), *ends.values())
    at_ns = numbers(frames["ts_ns"])
    order = np.lexsort((at_ns, sent, key))
    first = np.searchsorted(2 * key[order] + sent[order], 2 * key[order] + sent[order], "left")
    copy = np.empty(len(key), np.int64)
    copy[order] = np.arange(len(key)) - first
    row, rows = factorise(key, copy)
    groups = Groups(row, rows)
    columns: dict[str, Column] = {name: groups.most(pa.array(end, mask=end < 0)) for name, end in ends.items()}
    columns |= {"message_id": groups.most(frames["message_id"])}
    columns |= {"log_send_ns": groups.least(frames["ts_ns"], sent), "log_recv_ns": groups.least(frames["ts_ns"], ~sent)}
    return _transmissions(columns, rows)


def count_copies(heard: pa.Table, further: pa.Table) -> pa.Table:
    """Return ``TRANSMISSIONS`` by the receivers' reports of copies, from neighbours that are not known.

    Args:
        heard: ``traces.TOLD``. A publisher's delivery of its own message is not a copy.
        further: ``traces.FURTHER``.
    """
    names = ["message_id", "node", "ts_ns"]
    rows = pa.concat_tables([_read_first(heard).select(names), further.select(names)])
    columns = {"message_id": rows["message_id"], "dst_node": rows["node"], "log_recv_ns": rows["ts_ns"]}
    return _transmissions(columns, len(rows))


def _transmissions(columns: Mapping[str, Column], rows: int) -> pa.Table:
    nothing = {field.name: pa.nulls(rows, field.type) for field in TRANSMISSIONS}
    return conform(nothing | dict(columns), TRANSMISSIONS)


def build_control(frames: pa.Table, zero_ns: int) -> pa.Table:
    """Return the table ``control`` by the traces: frames other than data that nodes sent; their bytes are not known.

    Args:
        frames: ``traces.FRAMES``.
        zero_ns: the instant from which seconds are counted.
    """
    sent = frames.filter((pc.field("event") == "send") & (pc.field("kind") != Data.kind))
    at_ns = numbers(sent["ts_ns"])
    named = sent.select(["node", "kind"]).append_column("second_ns", pa.array(at_ns - (at_ns - zero_ns) % SECOND_NS))
    group, found = group_rows(named, "node", "kind", "second_ns")
    columns: dict[str, Column] = {name: found[name] for name in found.column_names}
    columns |= {"frames": pa.array(np.bincount(group, minlength=len(found)))}
    return conform(columns | {"frame_bytes": pa.nulls(len(found), pa.int64())}, CONTROL)


def read_table(folder: Path, name: str) -> pa.Table:
    """Read a table that ``write_tables`` made."""
    return read_parquet(folder / "tables" / table_file(name), schema=arrow_schema(name))
