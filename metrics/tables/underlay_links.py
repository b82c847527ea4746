"""The ``underlay_links`` table: what each link of an underlay's graph carried, and how often the same message."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from metrics.executors import Executor
from metrics.facts.crossings import Routes, Through, count_copies
from metrics.pcap.walk import Ints
from metrics.storage import Place
from metrics.tables.bottlenecks import number_pairs
from metrics.tables.buckets import read_bucket
from metrics.tables.columns import numbers, valid
from metrics.tables.condensed import TRANSMISSIONS
from metrics.tables.schemas import UNDERLAY_LINKS, arrow_schema
from metrics.tables.shares import Share, all_shares
from metrics.tables.transits import TRANSITS

SCHEMA: Final = arrow_schema(UNDERLAY_LINKS)

MET: Final = ("queue_drops", "wait_ms_p50", "wait_ms_p99", "wait_ms_max")
"""What packets met at a bottleneck: columns of ``QUEUES``."""

ROWS: Final = 200_000
"""The number of copies whose paths are in memory at a time: a path has several links."""


class LinkSources(Struct, frozen=True):
    """The sources of the table, in buckets.

    Attributes:
        transits: ``TRANSITS``; None = there are no captures.
        transmissions: ``TRANSMISSIONS``; None = copies are not known.
        buckets: how many buckets each of them has.
        queues: ``QUEUES``, not in buckets; None = there are no captures, or no bottlenecks.
        reported: whether copies are those that programs report, which may not name the sender.
    """

    transits: Place | None
    transmissions: Place | None
    buckets: int
    queues: pa.Table | None = None
    reported: bool = False


def build_underlay_links(executor: Executor, through: Through, sources: LinkSources) -> pa.Table:
    """Return one row per link and direction.

    A packet that has entered the network counts on every link of the path between its hosts, even if it is lost on the
    way. A copy of a message counts likewise, as a frame that was sent. Copies are null if they are not known, or if the
    sender of a reported one is not.

    Args:
        executor: reads the buckets.
        through: which packets and copies cross which links.
        sources: the sources of the table.
    """
    shares = all_shares(sources.buckets)
    size = len(through.graph.links)
    links, routers = through.graph.links, through.graph.routers
    columns: dict[str, Any] = {
        "link": range(size),
        "src_router": [link.source for link in links],
        "dst_router": [link.destination for link in links],
        "src_name": [routers[link.source].name for link in links],
        "dst_name": [routers[link.destination].name for link in links],
        "delay_ms": [link.delay_ms for link in links],
        "rate_mbit": [link.rate_mbit or None for link in links],
        "queue_ms": [link.queue_ms if link.rate_mbit else None for link in links],
    }
    if sources.transmissions is not None and not (
        sources.reported and any(executor.map(partial(_lacks_sender, sources.transmissions), shares))
    ):
        counts = np.stack([*executor.map(partial(_count_copies, through, sources.transmissions), shares)])
        columns |= {"copies": counts[:, 0].sum(0), "messages": counts[:, 1].sum(0), "copies_max": counts[:, 2].max(0)}
    if sources.transits is not None:
        found = executor.map(partial(_count_packets, through, sources.transits), shares)
        columns |= dict(zip(("packets", "wire_bytes", "pairs"), np.sum(found, axis=0), strict=True))
    if sources.queues is not None:
        of_links = {row["link"]: row for row in sources.queues.to_pylist()}
        columns |= {name: [of_links.get(link, {}).get(name) for link in range(size)] for name in MET}
    nothing = pa.nulls(size)
    return pa.table(
        {field.name: pa.array(columns[field.name]) if field.name in columns else nothing for field in SCHEMA}
    ).cast(SCHEMA)


def _count_packets(through: Through, transits: Place, share: Share) -> Ints:
    """Count packets, bytes and pairs of nodes that sent some, (3, links). A pair's packets are in one bucket."""
    rows = read_bucket(transits, TRANSITS, share, ["src_node", "dst_node", "sent_ns", "wire_bytes"])
    rows = rows.filter(pc.is_valid(rows["sent_ns"]))
    pairs, pair = _pairs(rows)
    of_pairs = np.stack(
        [
            np.bincount(pair, minlength=len(pairs)),
            np.bincount(pair, numbers(rows["wire_bytes"]), minlength=len(pairs)).astype(np.int64),
            np.ones(len(pairs), np.int64),
        ]
    )
    lengths, links = Routes.of(through, pairs)
    found = np.zeros((3, len(through.graph.links)), np.int64)
    for sums, values in zip(found, of_pairs, strict=True):
        np.add.at(sums, links, np.repeat(values, lengths))
    return found


def _lacks_sender(transmissions: Place, share: Share) -> bool:
    """Return whether the sender of a copy is not known."""
    return bool(read_bucket(transmissions, TRANSMISSIONS, share, ["src_node"])["src_node"].null_count)


def _count_copies(through: Through, transmissions: Place, share: Share) -> Ints:
    """Count copies, messages, and the most copies of one message, (3, links). A message's copies are in one bucket."""
    rows = read_bucket(transmissions, TRANSMISSIONS, share, ["message_id", "src_node", "dst_node"])
    ends = rows["src_node"], rows["dst_node"]
    rows = rows.filter(pa.array(valid(*ends) & through.has(numbers(ends[0])) & through.has(numbers(ends[1]))))
    pairs, pair = _pairs(rows)
    routes = Routes.of(through, pairs)
    _, message = np.unique(numbers(rows["message_id"]), return_inverse=True)
    order = np.argsort(message, kind="stable")
    size = len(through.graph.links)
    found = np.zeros((3, size), np.int64)
    for chosen in _whole_messages(order, message):
        copies, messages, most = count_copies(routes, pair[chosen], message[chosen], size)
        found = np.stack([found[0] + copies, found[1] + messages, np.maximum(found[2], most)])
    return found


def _whole_messages(order: Ints, message: Ints) -> list[Ints]:
    """Divide rows that are in the order of messages into parts of about ``ROWS``, each of whole messages."""
    parts, begin = [], 0
    sorted_messages = message[order]
    while begin < len(order):
        last = sorted_messages[min(begin + ROWS, len(order)) - 1]
        end = int(np.searchsorted(sorted_messages, last, "right"))
        parts.append(order[begin:end])
        begin = end
    return parts


def _pairs(rows: pa.Table) -> tuple[Ints, Ints]:
    """Return the different pairs of nodes as (pairs, 2), and the number of each row's pair."""
    return number_pairs(numbers(rows["src_node"]), numbers(rows["dst_node"]))
