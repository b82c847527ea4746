"""The kernel's counters of the plane: of devices (cheap), and of the leaves of all pairs (thousands of numbers)."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.planes.kernel.settings import SINK, port_device
from harness.planes.plane import DROP_CAUSES, Counters

DEVICES = Path("/proc/self/net/dev")

_ETHERNET_BYTES = 14
_RECEIVED_BYTES, _RECEIVED, _SENT_BYTES, _SENT, _SENT_DROPPED = 0, 1, 8, 9, 11
"""Columns of ``DEVICES``."""

Table = Mapping[str, tuple[int, ...]]


class LeafCounts(NamedTuple):
    """What the leaves of all pairs have counted.

    Attributes:
        drops: frames by cause.
        in_flight: frames that they hold.
    """

    drops: dict[str, int]
    in_flight: int


def read_devices(text: str) -> dict[str, tuple[int, ...]]:
    """Return the counters of every device in the text of ``DEVICES``."""
    rows = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): tuple(map(int, row.split())) for name, row in rows}


def count_leaves(qdiscs: Iterable[Mapping[str, Any]]) -> LeafCounts:
    """Add up the leaves' counters.

    A leaf with loss does not say which of its drops the loss chose and which came from a full queue: all count as loss.

    Args:
        qdiscs: the output of ``tc -s -j qdisc show``.
    """
    drops = dict.fromkeys(DROP_CAUSES, 0)
    in_flight = 0
    for entry in qdiscs:
        if entry["kind"] == "netem":
            drops[_cause(entry["options"])] += entry["drops"]
            in_flight += entry["qlen"]
    return LeafCounts(drops, in_flight)


def _cause(options: Mapping[str, Any]) -> str:
    loss_ratio = options.get("loss-random", {}).get("loss", 0.0)
    if loss_ratio == 1.0:
        return "unknown_destination"  # the class of packets from no known source
    return "loss" if loss_ratio else "overload"


def count_frames(table: Table, hosts: int) -> Counters:
    """Return what the bridge's ports have counted, without the leaves. Bytes are those of IP packets.

    Args:
        table: of ``read_devices``.
        hosts: their number.
    """
    rows = [table[port_device(host)] for host in range(hosts)]
    frames_in, frames_out = (sum(row[column] for row in rows) for column in (_RECEIVED, _SENT))
    bytes_in, bytes_out = (sum(row[column] for row in rows) for column in (_RECEIVED_BYTES, _SENT_BYTES))
    drops = dict.fromkeys(DROP_CAUSES, 0) | {
        "unknown_destination": table[SINK][_SENT],
        "device_full": sum(row[_SENT_DROPPED] for row in rows),
    }
    return Counters(
        frames_in=frames_in,
        frames_out=frames_out,
        bytes_in=bytes_in - _ETHERNET_BYTES * frames_in,
        bytes_out=bytes_out - _ETHERNET_BYTES * frames_out,
        drops=drops,
        in_flight=0,
    )


def add_leaves(counters: Counters, leaves: LeafCounts) -> Counters:
    """Return the counters with those of the leaves."""
    drops = {cause: counters.drops[cause] + leaves.drops[cause] for cause in DROP_CAUSES}
    return Counters(
        counters.frames_in, counters.frames_out, counters.bytes_in, counters.bytes_out, drops, leaves.in_flight
    )


def settle(read: Callable[[], Counters], is_over: Callable[[], bool]) -> Counters:
    """Return the counters once two readings agree and account for every frame, or the last ones when time is over.

    A reading takes milliseconds, in which frames may pass. Leaves are read before devices, whose counters never fall.
    So two equal readings of devices say that no frame entered or left between them, and the second reading of the
    leaves is of that time. Frames that the leaves still hold are counted as in flight, however long their delay: they
    need not arrive. A frame between the counter of a port and its leaf is in no counter. That takes microseconds, but
    longer on a busy machine; then the frame is missing, and the counters are read again.

    Args:
        read: reads the counters, see ``KernelPlane.counters``.
        is_over: whether to give up.
    """
    before, now = read(), read()
    while (now != before or now.unaccounted) and not is_over():
        before, now = now, read()
    return now
