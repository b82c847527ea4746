"""What an access link with a rate does to packets that reach it with jitter, within bounds.

Nobody knows when such a packet entered the link's queue. But jitter moves few packets by more than
``metrics.probing.JITTER_SIGMAS``, so that each packet has an earliest and a latest instant of entry; and the queue lets
packets out in the order in which they entered it, which is that of their arrivals. From these follow the earliest and
the latest instant at which each packet leaves the link, the longest time that it may have waited, and the shortest.
"""

from typing import NamedTuple

import numpy as np

from metrics.pcap.walk import Bools, Ints


class Entries(NamedTuple):
    """Packets that reached a link: (n,) columns, instants in ns."""

    early_ns: Ints  # when each entered the link at the earliest
    late_ns: Ints  # at the latest
    came_ns: Ints  # when it arrived, behind the link
    came: Bools  # whether it did
    wire_bytes: Ints


class Bounds(NamedTuple):
    """What is known of the packets of a link: (n,) columns."""

    earliest_ns: Ints  # when each leaves the link at the earliest; without meaning for one that did not arrive
    latest_ns: Ints  # at the latest
    may_be_full: Bools  # whether the queue may have been full when the packet entered it
    is_over: Bools  # whether the packet arrived although the queue was full for certain


def bound_link(entries: Entries, byte_ns: float, queue_ns: int, tolerance_ns: int) -> Bounds:
    """Bound what a link does to its packets.

    Args:
        entries: see there.
        byte_ns: time to send a byte.
        queue_ns: longest time that a packet may wait.
        tolerance_ns: a packet that is further from its bounds than this moves the bounds of those behind it, so that
            one deviation is not counted again with each of them.
    """
    passage_ns = (entries.wire_bytes * byte_ns).astype(np.int64)
    earliest_ns, latest_ns = _bound_exits(entries, passage_ns, tolerance_ns)
    left_ns = np.minimum(entries.came_ns, latest_ns)
    is_over = entries.came & (left_ns - passage_ns - entries.late_ns > queue_ns + tolerance_ns)
    return Bounds(earliest_ns, latest_ns, _last_before(entries) - entries.early_ns > queue_ns, is_over)


def _bound_exits(entries: Entries, passage_ns: Ints, tolerance_ns: int) -> tuple[Ints, Ints]:
    """When each packet that arrived leaves the link at the earliest and at the latest."""
    earliest_ns, latest_ns = entries.early_ns + passage_ns, entries.late_ns + passage_ns
    arrived = np.flatnonzero(entries.came)
    order = arrived[np.lexsort((entries.late_ns[arrived], entries.came_ns[arrived]))]
    first = last = 0
    columns = (entries.early_ns, entries.late_ns, entries.came_ns, passage_ns)
    for row, early, late, came, passage in zip(
        order.tolist(), *(column[order].tolist() for column in columns), strict=True
    ):
        first, last = max(early, first) + passage, max(late, last) + passage
        earliest_ns[row], latest_ns[row] = first, last
        if came < first - tolerance_ns:
            first = came
        elif came > last + tolerance_ns:
            last = came
    return earliest_ns, latest_ns


def _last_before(entries: Entries) -> Ints:
    """The last arrival of the other packets that may have entered the link before each packet; 0 = there is none."""
    order = np.argsort(entries.early_ns, kind="stable")
    most = second = 0
    whose = -1
    found = [(most, whose, second)]
    came_ns = np.where(entries.came, entries.came_ns, 0)
    for row, at_ns in zip(order.tolist(), came_ns[order].tolist(), strict=True):
        if at_ns > most:
            most, whose, second = at_ns, row, most
        else:
            second = max(second, at_ns)
        found.append((most, whose, second))
    mosts, owners, seconds = (np.array(column, np.int64) for column in zip(*found, strict=True))
    place = np.searchsorted(entries.early_ns[order], entries.late_ns, "right")
    return np.where(owners[place] == np.arange(len(order)), seconds[place], mosts[place])
