"""Follow each packet through the emulated network, from the data plane's read at its source to its write at its target.

Three passes over the captured packets, each by tasks:

1. By source (``build_transits``): a packet that left is found again among the packets that arrived at its destination,
   by the hash of its headers (``metrics.pcap.headers``). A packet that a fault lets arrive twice is two packets from
   there on (``topologies.disorder``). If the access link of the source has a rate, it is replayed.
   Then the delay asked for is added, under jitter the delay of the instant. The packet is then due at the destination,
   but not before an earlier packet of its pair. If a fault lets later packets overtake it, its further delay is added.
2. For all sources together, if the underlay has bottlenecks (``bottleneck_replay.replay_bottlenecks``): the packets
   that cross some are replayed from queue to queue.
3. By destination (``transit_evidence.weigh_transits``): the access link of the destination is replayed likewise. The
   time between the instant at which a packet is due and the instant at which it arrived is the emulation's error.

A replay is exact, since the capture has the instants from which the data plane computes: a queue's state follows from
the packets that entered it. A fault may change a rate: a packet meets the rate that holds when it reaches the link, and
packets in the queue leave at the rate that they met. Retransmissions do not matter: each is a packet like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from metrics.asked import Access, Floats, find_asked
from metrics.changes import PairChanges
from metrics.pcap.flows import factorise
from metrics.pcap.schemas import CROSSINGS
from metrics.pcap.walk import Bools, Ints
from metrics.storage import Place
from metrics.tables.bottlenecks import Crossed
from metrics.tables.buckets import divide, of_nodes, read_bucket
from metrics.tables.columns import conform, group_rows, holds, numbers
from metrics.tables.schemas import schema_of
from metrics.tables.shares import Share
from topologies.disorder import choose_packets
from topologies.jitter import Jitter
from topologies.model import UP

TRANSITS: Final = schema_of("""
    src_node int, dst_node int, sent_ns bigint, due_ns bigint, came_ns bigint, wire_bytes bigint,
    is_clear boolean, is_full boolean, is_through boolean, payload_bytes bigint, reorder_ns bigint
""")
"""A packet between two nodes' hosts: when it left; when it was due at the destination's access link; when it arrived
(null: it did not); whether it is certain which arrival belongs to it; whether it met a full queue at its source, or at
a bottleneck; whether it crosses a bottleneck; its payload of TCP or UDP; its further delay if a fault lets later
packets overtake it (0: none does). The copy of a packet that a fault lets arrive twice is a row of its own.

An arrival without departure has no ``sent_ns``."""

_MS = 1e6


@dataclass(frozen=True)
class TransitSources:
    """The sources of transits."""

    crossings: Place  # ``CROSSINGS``, in buckets of sources
    pairs: Place  # matrices of what was asked of pairs of nodes
    nodes: Mapping[int, int]  # node by address
    hosts: Mapping[int, int]  # host by node
    jitter: Jitter
    buckets: int
    crossed: Crossed


def build_transits(sources: TransitSources, share: Share) -> dict[str, list[pa.Table]]:
    """Return the transits of the packets from a share of the sources, in buckets of destinations (``TRANSITS``).

    Packets that cross a bottleneck are separate (``through``), and due when they leave the access links of their
    sources: ``metrics.tables.bottleneck_replay`` continues with them.
    """
    rows = _between_nodes(read_bucket(sources.crossings, CROSSINGS, share), sources.nodes)
    access = Access.staged(sources.pairs)
    sent, came_ns, is_clear, others = match(_disorder(sources, rows, access.changes))
    exit_ns, is_full = _leave(sent, came_ns >= 0, access)
    due_ns = exit_ns + _delays_ns(sources, sent, exit_ns)
    is_through = sources.crossed.through(numbers(sent["src_node"]), numbers(sent["dst_node"]))
    if access.changes:
        due_ns = _keep_order(sent, due_ns, (came_ns >= 0) | ~(is_full | _may_lose(sources, sent)))
    due_ns = due_ns + numbers(sent["reorder_ns"])
    columns = {
        "src_node": sent["src_node"],
        "dst_node": sent["dst_node"],
        "sent_ns": sent["ts_ns"],
        "due_ns": pa.array(np.where(is_through, exit_ns, due_ns)),
        "came_ns": pa.array(came_ns, mask=came_ns < 0),
        "wire_bytes": sent["wire_bytes"],
        "is_clear": pa.array(is_clear),
        "is_full": pa.array(is_full),
        "is_through": pa.array(is_through),
        "payload_bytes": sent["payload_bytes"],
        "reorder_ns": sent["reorder_ns"],
    }
    unsent = {name: pa.nulls(len(others), TRANSITS.field(name).type) for name in TRANSITS.names}
    unsent |= {"src_node": others["src_node"], "dst_node": others["dst_node"], "came_ns": others["ts_ns"]}
    left = conform(columns, TRANSITS)
    found = pa.concat_tables([left.filter(pa.array(~is_through)), conform(unsent, TRANSITS)])
    made = {"transits": divide(found, of_nodes(found["dst_node"], sources.buckets), sources.buckets)}
    return made | ({"through": [left.filter(pa.array(is_through))]} if sources.crossed else {})


def _disorder(sources: TransitSources, rows: pa.Table, changes: PairChanges) -> pa.Table:
    """Return crossings with what faults ask of them: ``is_copy`` and ``reorder_ns`` (``TRANSITS``).

    A departure that is to arrive twice is there a second time, directly behind it, as a copy.
    """
    is_copy, reorder_ns = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int64)
    if changes.disorders:
        source, destination, ts_ns = (numbers(rows[name]) for name in ("src_node", "dst_node", "ts_ns"))
        host_of = np.zeros(1 + max(sources.hosts), np.int64)
        host_of[list(sources.hosts)] = list(sources.hosts.values())
        asked, since_ns = changes.disorder(source, destination, ts_ns), ts_ns - sources.jitter.zero_ns
        is_doubled, reorder_ns = choose_packets(
            sources.jitter.seed, host_of[source], host_of[destination], since_ns, asked
        )
        is_tx = holds(rows["is_tx"])
        place, reorder_ns = np.repeat(np.arange(len(rows)), 1 + (is_doubled & is_tx)), np.where(is_tx, reorder_ns, 0)
        rows, reorder_ns, is_copy = rows.take(pa.array(place)), reorder_ns[place], np.diff(place, prepend=-1) == 0
    return rows.append_column("is_copy", pa.array(is_copy)).append_column("reorder_ns", pa.array(reorder_ns))


def _leave(sent: pa.Table, arrived: Bools, access: Access) -> tuple[Ints, Bools]:
    """Return when packets have left the access links of their sources, and whether they met full queues there.

    A copy is made behind that link, so it has left it with its packet, which is directly before it.
    """
    is_own = ~holds(sent["is_copy"])
    packet = np.cumsum(is_own) - 1
    exit_ns, is_full = _leave_alone(sent.filter(pa.array(is_own)), arrived[is_own], access)
    return exit_ns[packet], is_full[packet]


def _leave_alone(sent: pa.Table, arrived: Bools, access: Access) -> tuple[Ints, Bools]:
    """Return the same for packets without copies."""
    src, exit_ns, is_full = numbers(sent["src_node"]), numbers(sent["ts_ns"]).copy(), np.zeros(len(sent), np.bool_)
    takes_ns = transmission_ns(numbers(sent["wire_bytes"]), access.rates_mbit(UP, src, exit_ns))
    for node in np.unique(src[takes_ns > 0]).tolist():
        own, queue_ns = np.flatnonzero(src == node), access.queue_ns(UP, node)
        exit_ns[own], is_full[own] = pass_link(exit_ns[own], takes_ns[own], arrived[own], queue_ns, lost_later=True)
    return exit_ns, is_full


def _may_lose(sources: TransitSources, sent: pa.Table) -> Bools:
    """Return for which packets loss was asked for, (n,)."""
    asked = find_asked(sources.pairs, "loss_ratio", sent["src_node"], sent["dst_node"], sent["ts_ns"])
    return np.asarray(asked.to_numpy(zero_copy_only=False) > 0)


def _keep_order(sent: pa.Table, due_ns: Ints, passed: Bools) -> Ints:
    """Return when packets are due, (n,), such that none is due before an earlier packet of its pair.

    This matters if a fault has made a delay shorter.

    Args:
        sent: the packets in order of time, with ``src_node`` and ``dst_node``.
        due_ns: (n,) when each would be due on its own.
        passed: (n,) whether they reached the access link of the destination.
    """
    pair, _ = group_rows(sent, "src_node", "dst_node")
    order = np.argsort(pair, kind="stable")
    instants, rank = np.unique(due_ns, return_inverse=True)
    first = pair * len(instants)  # no instant of a pair sorts behind one of the next
    latest = np.maximum.accumulate(np.where(passed, first + rank, first)[order])
    kept_ns = np.empty(len(due_ns), np.int64)
    kept_ns[order] = np.maximum(due_ns[order], instants[latest - first[order]])
    return kept_ns


def _delays_ns(sources: TransitSources, sent: pa.Table, enters_ns: Ints) -> Ints:
    """Return the delays asked for of packets that enter the links of their pairs at some instants."""
    ends = sent["src_node"], sent["dst_node"], sent["ts_ns"]
    delay_ms, jitter_ms = (
        find_asked(sources.pairs, name, *ends).to_numpy(zero_copy_only=False) for name in ("delay_ms", "jitter_ms")
    )
    delays_ns = np.rint(delay_ms * _MS).astype(np.int64)
    jittered = np.flatnonzero(jitter_ms > 0)
    asked = sent.select(["src_node", "dst_node"]).take(pa.array(jittered))
    asked = asked.append_column("delay_ms", pa.array(delay_ms[jittered]))
    asked = asked.append_column("jitter_ms", pa.array(jitter_ms[jittered]))
    link, links = group_rows(asked, *asked.column_names)
    order = np.argsort(link, kind="stable")
    bounds = np.searchsorted(link[order], np.arange(len(links) + 1))
    for number, found in enumerate(links.to_pylist()):
        own = jittered[order[bounds[number] : bounds[number + 1]]]
        source, destination = (sources.hosts[found[end]] for end in ("src_node", "dst_node"))
        process = sources.jitter.process(source, destination, found["delay_ms"], found["jitter_ms"])
        delays_ns[own] += process.offsets_ns(enters_ns[own], sources.jitter.levels)
    return np.asarray(delays_ns)


def _between_nodes(rows: pa.Table, nodes: Mapping[int, int]) -> pa.Table:
    """Return crossings with the nodes of their addresses; crossings of other addresses are left out."""
    addresses = np.array(sorted(nodes), np.int64)
    by_place = np.array([*(nodes[address] for address in addresses.tolist()), -1], np.int32)
    for end in ("src", "dst"):
        wanted = numbers(rows[end])
        place = np.searchsorted(addresses, wanted)
        known = np.append(addresses, -1)[place] == wanted
        rows = rows.append_column(f"{end}_node", pa.array(by_place[np.where(known, place, len(addresses))]))
    mine = (numbers(rows["src_node"]) >= 0) & (numbers(rows["dst_node"]) >= 0)
    return rows.filter(pa.array(mine & (numbers(rows["src"]) != numbers(rows["dst"]))))


def match(rows: pa.Table) -> tuple[pa.Table, Ints, Bools, pa.Table]:
    """Find each departed packet among the arrivals: the k-th departure is the k-th arrival of the same headers.

    Args:
        rows: crossings, with ``src_node``, ``dst_node``, ``is_copy`` and ``reorder_ns``.

    Returns:
        The departures in order of time; when each arrived (-1: it did not); whether that is certain, which it is not if
        some of several packets with the same headers were lost, or overtaken; and the arrivals without departure. A
        packet and its copy count as one, since they are due at the same instant.
    """
    group, count = factorise(*(numbers(rows[name]) for name in ("src", "dst", "identity")))
    is_tx, ts_ns = rows["is_tx"].to_numpy(zero_copy_only=False), numbers(rows["ts_ns"])
    ordinal = {}
    for left in (True, False):
        mine = np.flatnonzero(is_tx == left)
        ordinal[left] = mine[np.lexsort((ts_ns[mine], group[mine]))]
    departures, arrivals = (_ranked(group[ordinal[left]], count) for left in (True, False))
    n_out, n_in = (np.bincount(group[ordinal[left]], minlength=count) for left in (True, False))
    most = int(max(n_out.max(initial=0), n_in.max(initial=0))) + 1
    keys_out, keys_in = (group[ordinal[left]] * most + rank for left, rank in ((True, departures), (False, arrivals)))
    place = np.searchsorted(keys_in, keys_out)
    arrived = np.append(keys_in, -1)[place] == keys_out
    came_ns = np.where(arrived, np.append(ts_ns[ordinal[False]], -1)[np.where(arrived, place, -1)], -1)
    n_own = np.bincount(group[is_tx & ~holds(rows["is_copy"])], minlength=count)
    overtaken = np.bincount(group[is_tx & (numbers(rows["reorder_ns"]) > 0)], minlength=count)
    is_clear = ((n_own == 1) | ((n_out == n_in) & (overtaken == 0)))[group[ordinal[True]]]
    left_over = ordinal[False][arrivals >= n_out[group[ordinal[False]]]]
    in_time = np.argsort(ts_ns[ordinal[True]], kind="stable")
    sent = rows.take(pa.array(ordinal[True][in_time]))
    return sent, came_ns[in_time], is_clear[in_time], rows.take(pa.array(left_over))


def _ranked(groups: Ints, count: int) -> Ints:
    """Return the rank of each row within its group; ``groups`` are sorted."""
    starts = np.searchsorted(groups, np.arange(count))
    ranks: Ints = np.arange(len(groups)) - starts[groups]
    return ranks


def transmission_ns(wire_bytes: Ints, rates_mbit: Floats) -> Ints:
    """Return how long access links take to send packets, (n,); 0 where the link has no rate."""
    byte_ns = np.divide(8000, rates_mbit, out=np.zeros(len(rates_mbit)), where=rates_mbit > 0)
    return np.asarray((wire_bytes * byte_ns).astype(np.int64))


def pass_link(came_ns: Ints, takes_ns: Ints, arrived: Bools, queue_ns: int, *, lost_later: bool) -> tuple[Ints, Bools]:
    """Replay an access link: a drop-tail queue.

    A packet that would have to wait longer than ``queue_ns`` is dropped. Whether a packet took its place in the queue
    follows from whether it really arrived, so that one deviation is not counted again with each packet after it.

    Args:
        came_ns: (n,) when each packet reached the link, in order.
        takes_ns: (n,) how long the link takes to send it, at the rate at that instant.
        arrived: (n,) whether it arrived at its destination.
        queue_ns: longest time that a packet may wait.
        lost_later: whether packets that did not arrive and met no full queue still passed this link.

    Returns:
        (n,) when each packet has left the link, and whether it met a full queue.
    """
    free_ns = 0
    exits, full = [], []
    for at_ns, taken_ns, came in zip(came_ns.tolist(), takes_ns.tolist(), arrived.tolist(), strict=True):
        wait_ns = free_ns - at_ns
        is_full = wait_ns > queue_ns
        exit_ns = at_ns + taken_ns + max(wait_ns, 0)
        if came or (lost_later and not is_full):
            free_ns = exit_ns
        exits.append(exit_ns)
        full.append(is_full)
    return np.array(exits, np.int64), np.array(full, np.bool_)
