"""Find which captures of a packet are at its source, and which at its destination, if the captures do not say it.

A capture of a host that talks with one other host has both addresses in every packet. Two ways show which host it
belongs to: the hosts of addresses, if they are given, or the times of the packets at two captures. Suppose that one
capture is nearer to A and the other nearer to B. B's capture sees a packet from A to B later, by the packet's delay
plus the difference of the clocks. A's capture sees a packet from B to A later, by its delay minus that difference. The
sum of both is a round trip, whatever the clocks show. It is negative if the captures are the other way round.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np

from metrics.pcap.flows import factorise
from metrics.pcap.headers import Packets, address_text
from metrics.pcap.records import MID, RX, TX
from metrics.pcap.walk import Bools, Ints

Delays = dict[tuple[int, int], float]
"""The median of how much later the second vantage saw a packet than the first, by two vantages."""


def find_directions(packets: Packets, key: Ints, vantages: Sequence[str], hosts: Mapping[str, str]) -> None:
    """Set in place where packets were seen, if it is not known.

    Args:
        packets: ``host`` is the number of the vantage.
        key: a number that copies of a packet share.
        vantages: the host of each vantage.
        hosts: the host of each address.
    """
    _ask_hosts(packets, vantages, hosts)
    src, dst, unknown = packets.columns.src, packets.columns.dst, packets.tap == MID
    pair, count = factorise(np.minimum(src, dst), np.maximum(src, dst))
    asked = np.bincount(pair, unknown & (src != dst), count) > 0
    rows = np.flatnonzero(asked[pair])
    order = rows[np.argsort(pair[rows], kind="stable")]
    for of_pair in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
        if len(of_pair):
            _ask_times(packets, key, of_pair, src[of_pair] < dst[of_pair])


def _ask_hosts(packets: Packets, vantages: Sequence[str], hosts: Mapping[str, str]) -> None:
    """Let a packet leave at the capture of its source's host, and arrive at the capture of its destination's host."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*vantages, *hosts.values()]))}
    own = np.array([numbers[name] for name in vantages], np.int64)[packets.host]
    unknown = packets.tap == MID
    for column, tap in ((packets.columns.dst, RX), (packets.columns.src, TX)):
        encoded = np.unique(column, return_inverse=True)
        texts = [hosts.get(address_text(int(each), packets.ipv6)) for each in encoded[0]]
        known = np.array([-1 if name is None else numbers[name] for name in texts], np.int64)
        packets.tap[unknown & (known[encoded[1]] == own)] = tap


def _ask_times(packets: Packets, key: Ints, rows: Ints, upward: Bools) -> None:
    """Find the vantages at both ends, for the packets of two addresses.

    Args:
        packets: all packets.
        key: the keys of all packets.
        rows: the packets of the two addresses.
        upward: which of them go from the lower address to the higher one.
    """
    vantage, ts_ns = packets.host[rows].astype(np.int64), packets.records.ts_ns[rows]
    up, down = (_compare(vantage[some], key[rows][some], ts_ns[some]) for some in (upward, ~upward))
    nearer = {(one, other) for one, other in up if (other, one) in down and up[one, other] + down[other, one] > 0}
    low, high = ({pair[end] for pair in nearer} - {pair[1 - end] for pair in nearer} for end in (0, 1))
    if len(low) != 1 or len(high) != 1:
        return
    unknown = packets.tap[rows] == MID
    at_low, at_high = unknown & (vantage == min(low)), unknown & (vantage == min(high))
    packets.tap[rows[at_low & upward | at_high & ~upward]] = TX
    packets.tap[rows[at_low & ~upward | at_high & upward]] = RX


def _compare(vantage: Ints, key: Ints, ts_ns: Ints) -> Delays:
    """Compare the instants of packets that each of two vantages has once."""
    seen: dict[int, tuple[Ints, Ints]] = {}
    for each in np.unique(vantage).tolist():
        mine = np.flatnonzero(vantage == each)
        keys, first, times = np.unique(key[mine], return_index=True, return_counts=True)
        seen[each] = keys[times == 1], ts_ns[mine][first[times == 1]]
    found = {}
    for one, other in permutations(seen, 2):
        _, here, there = np.intersect1d(seen[one][0], seen[other][0], assume_unique=True, return_indices=True)
        if len(here):
            found[one, other] = float(np.median(seen[other][1][there] - seen[one][1][here]))
    return found
