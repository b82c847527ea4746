"""Find the first delivery of each message to each node, for several tables. Later deliveries to the node are repeats.

A *pair* is a message and a node. Each caller numbers its pairs, such as by the rows of another table. Duplicates are
copies and not deliveries: ``metrics.tables.hops`` finds them. Studies find both in ``harness.studies.observer``.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from peer.core.bitset import Bitset

Ints = npt.NDArray[np.int64]


class FirstDeliveries(NamedTuple):
    """The deliveries of some pairs.

    Attributes:
        row: (pairs,) the row of each pair's first delivery; -1 = there is none.
        repeats: (pairs,) the deliveries of each pair after the first one.
    """

    row: Ints
    repeats: Ints


def find_first(pair: Ints, at_ns: Ints, pairs: int) -> FirstDeliveries:
    """Find the first delivery of each pair. Of several at the same instant, the first row counts.

    Args:
        pair: (n,) the number of each delivery's pair; ``pairs`` = the delivery belongs to no pair.
        at_ns: (n,) the instants of the deliveries, in any order.
        pairs: how many pairs there are.
    """
    latest_first = np.argsort(at_ns, kind="stable")[::-1]
    row = np.full(pairs + 1, -1)
    row[pair[latest_first]] = latest_first  # the last of several assignments remains: the first delivery
    count = np.bincount(pair, minlength=pairs + 1)
    return FirstDeliveries(row[:pairs], np.maximum(count[:pairs] - 1, 0))


def list_members(nodes: Bitset) -> Ints:
    """Return the members of a set in rising order, (n,)."""
    content = nodes.to_bytes((nodes.bit_length() + 7) >> 3, "little")
    return np.flatnonzero(np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little"))
