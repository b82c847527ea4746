"""Replay the queues of bottlenecks: when packets that cross them are due at their destinations, which met full queues.

All packets that cross a bottleneck share its queue, whatever their source. So one task replays all of them, in order of
time, from the instants at which they have left the access links of their sources (``metrics.tables.transits``). It
follows each packet from queue to queue, as the data plane does. It is exact for the same reason as the replay of access
links. Packets that a cut drops on their way are replayed as if they went on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from metrics.asked import find_asked
from metrics.executors import Executor
from metrics.pcap.walk import Bools, Ints
from metrics.storage import Place
from metrics.tables.bottlenecks import QUEUES
from metrics.tables.buckets import divide, of_nodes, read_bucket
from metrics.tables.columns import conform, group_rows, holds, numbers, valid
from metrics.tables.shares import Share, write_share
from metrics.tables.transits import TRANSITS, TransitSources
from topologies.bottlenecks import Bottleneck, jittered_ns, split_ns
from topologies.jitter import JitterProcess

_MS: Final = 1e6


@dataclass(frozen=True)
class Way:
    """What is asked of some packets of a pair of nodes on their path.

    Attributes:
        parts_ns: the delays before each bottleneck, and after the last one.
        delay_ns: their sum.
        jitter: the jitter of that sum; None = no jitter.
        bottlenecks: the numbers of the bottlenecks on the path, in its order.
        pair: the number of the pair.
        may_lose: whether packets can be lost after the last bottleneck.
    """

    parts_ns: tuple[int, ...]
    delay_ns: int
    jitter: JitterProcess | None
    bottlenecks: tuple[int, ...]
    pair: int
    may_lose: bool


class Packets(NamedTuple):
    """Packets in the order in which they left the access links of their sources; arrays are (n,).

    Attributes:
        enters_ns: when each has left the access link of its source.
        wire_bytes: the size of each packet.
        came: whether each packet arrived.
        way: the number of each packet's ``Way``.
    """

    enters_ns: Ints
    wire_bytes: Ints
    came: Bools
    way: Ints


class Replay:
    """The queues of all bottlenecks, while packets pass them.

    Attributes:
        due_ns: (n,) when each packet is due at its destination's access link.
        full: (n,) whether each packet met a full queue.
        waits_ns: how long packets waited at each bottleneck.
        drops: packets that met a full queue there and did not arrive.
    """

    def __init__(self, bottlenecks: tuple[Bottleneck, ...], ways: list[Way], packets: Packets) -> None:
        """Replay the packets.

        Args:
            bottlenecks: all of them, in the order of their numbers.
            ways: all of them, likewise.
            packets: see ``Packets``, without the packets that did not arrive and met a full queue before.
        """
        self._ways = ways
        self._byte_ns = [8000 / each.rate_mbit for each in bottlenecks]
        self._queue_ns = [int(each.queue_ms * _MS) for each in bottlenecks]
        self._free_ns = [0] * len(bottlenecks)
        self._passed_ns: dict[tuple[int, int], int] = {}
        self._moving: list[tuple[int, int, int, int]] = []
        self._order = 0
        enters_ns, self._bytes, came, self._way = (values.tolist() for values in packets)
        self._came: list[bool] = came
        self.due_ns = list(enters_ns)
        self.full = [False] * len(enters_ns)
        self.waits_ns: list[list[int]] = [[] for _ in bottlenecks]
        self.drops = [0] * len(bottlenecks)
        for packet, at_ns in enumerate(enters_ns):
            self._go_on(at_ns)
            self._enter(packet, 0, at_ns)
        self._go_on(None)

    def _go_on(self, until_ns: int | None) -> None:
        """Let the packets that reach a bottleneck before an instant meet its queue; None = all."""
        moving = self._moving
        while moving and (until_ns is None or moving[0][0] < until_ns):
            at_ns, _, packet, part = heappop(moving)
            self._meet(packet, part, at_ns)

    def _enter(self, packet: int, part: int, at_ns: int) -> None:
        """Let a packet enter a part of its path, in which it overtakes no packet of its pair."""
        way = self._ways[self._way[packet]]
        offset_ns = 0 if way.jitter is None else way.jitter.offset_ns(at_ns)
        key = way.pair, part
        earlier_ns = self._passed_ns.get(key, 0)
        passed_ns = max(at_ns + jittered_ns(way.parts_ns[part], way.delay_ns, offset_ns), earlier_ns)
        is_last = part == len(way.bottlenecks)
        if self._came[packet] or not (is_last and way.may_lose):
            self._passed_ns[key] = passed_ns
        if is_last:
            self.due_ns[packet] = passed_ns
        else:
            self._order += 1
            heappush(self._moving, (passed_ns, self._order, packet, part))

    def _meet(self, packet: int, part: int, at_ns: int) -> None:
        """Let a packet pass the queue behind a part of its path, or drop it.

        A packet that arrived takes its place even if the queue was full, so that one deviation is not counted again
        with each packet after it.
        """
        way = self._ways[self._way[packet]]
        number = way.bottlenecks[part]
        wait_ns = max(self._free_ns[number] - at_ns, 0)
        leaves_ns = at_ns + wait_ns + int(self._bytes[packet] * self._byte_ns[number])
        if wait_ns > self._queue_ns[number]:
            self.full[packet] = True
            if not self._came[packet]:
                self.drops[number] += 1
                self.due_ns[packet] = leaves_ns + sum(way.parts_ns[part + 1 :])
                return
        self.waits_ns[number].append(wait_ns)
        self._free_ns[number] = leaves_ns
        self._enter(packet, part + 1, leaves_ns)


def replay_bottlenecks(executor: Executor, sources: TransitSources, through: Place, transits: Place) -> pa.Table:
    """Add the packets that cross bottlenecks to the transits, and return what they met (``QUEUES``), in one task.

    Args:
        executor: runs the task.
        sources: the sources of the transits.
        through: the packets (``TRANSITS``), due when they have left the access links of their sources.
        transits: the folder of all others, in buckets of destinations.
    """
    [found] = executor.map(lambda share: _replay(sources, through, transits, share), [Share()])
    return found


def _replay(sources: TransitSources, through: Place, transits: Place, share: Share) -> pa.Table:
    rows = read_bucket(through, TRANSITS, share).sort_by([("due_ns", "ascending"), ("sent_ns", "ascending")])
    came, bottlenecks = valid(rows["came_ns"]), sources.crossed.bottlenecks.all
    way, ways = _find_ways(sources, rows)
    entered = np.flatnonzero(came | ~holds(rows["is_full"]))
    enters_ns = numbers(rows["due_ns"])
    packets = Packets(enters_ns[entered], numbers(rows["wire_bytes"])[entered], came[entered], way[entered])
    replay = Replay(bottlenecks, ways, packets)
    due_ns, is_full = enters_ns.copy(), holds(rows["is_full"]).copy()
    due_ns[entered] = replay.due_ns
    due_ns += numbers(rows["reorder_ns"])
    is_full[entered] |= np.array(replay.full, np.bool_)
    columns = {name: rows[name] for name in TRANSITS.names} | {"due_ns": pa.array(due_ns), "is_full": pa.array(is_full)}
    found = conform(columns, TRANSITS)
    parts = divide(found, of_nodes(found["dst_node"], sources.buckets), sources.buckets)
    behind_all = Share(sources.buckets, sources.buckets + 1)
    write_share({"transits": parts}, {"transits": transits}, behind_all)
    return pa.Table.from_pylist(list(_describe(bottlenecks, replay)), QUEUES)


def _describe(bottlenecks: tuple[Bottleneck, ...], replay: Replay) -> Iterator[dict[str, float | int | None]]:
    """Yield the rows of ``QUEUES``."""
    for each, waits_ns, drops in zip(bottlenecks, replay.waits_ns, replay.drops, strict=True):
        quantiles = np.quantile(waits_ns, [0.5, 0.99, 1.0]) / _MS if waits_ns else (None, None, None)
        waits = dict(zip(("wait_ms_p50", "wait_ms_p99", "wait_ms_max"), quantiles, strict=True))
        yield {"link": each.link, "rate_mbit": each.rate_mbit, "queue_ms": each.queue_ms, "queue_drops": drops} | waits


def _find_ways(sources: TransitSources, rows: pa.Table) -> tuple[Ints, list[Way]]:
    """Return the way of each packet, by number, and the ways."""
    asked = rows.select(["src_node", "dst_node"])
    pair, _ = group_rows(asked, "src_node", "dst_node")
    asked = asked.append_column("pair", pa.array(pair))
    for name in ("delay_ms", "jitter_ms", "loss_ratio"):
        found = find_asked(sources.pairs, name, rows["src_node"], rows["dst_node"], rows["sent_ns"])
        asked = asked.append_column(name, found)
    way, different = group_rows(asked, *asked.column_names)
    return way, [_make_way(sources, **each) for each in different.to_pylist()]


def _make_way(
    sources: TransitSources,
    *,
    src_node: int,
    dst_node: int,
    pair: int,
    delay_ms: float,
    jitter_ms: float,
    loss_ratio: float,
) -> Way:
    hosts, delay_ns = (sources.hosts[src_node], sources.hosts[dst_node]), round(delay_ms * _MS)
    stops = sources.crossed.stops(src_node, dst_node)
    jitter = sources.jitter.process(*hosts, delay_ms, jitter_ms) if jitter_ms else None
    numbers_ = tuple(stop.bottleneck for stop in stops)
    return Way(split_ns(delay_ns, stops), delay_ns, jitter, numbers_, pair, loss_ratio > 0)
