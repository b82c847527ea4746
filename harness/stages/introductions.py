"""How long after their start the programs of a run introduced themselves: gossipsub-interop's line ``PeerID``.

The clock of such a program starts between the start of its process, which is never before the warm-up, and this line.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from peer.files import output_file
from peer.interop.output import MAX_LINE_BYTES, Identity, read_line
from peer.lines import LineError
from peer.rfc3339 import PrintedTime

MOST_LINES: Final = 1000
"""The number of lines of a program that are searched. All known programs begin with the line."""

LATEST_NS: Final = 3_600_000_000_000
"""A time that is further from the start than this is of a wrong clock, for which its peer has ended (ns)."""


def measure_introductions(run_dir: Path, nodes: Iterable[int], start_ns: int, epoch_offset_ns: int) -> dict[str, int]:
    """Return the first and the last introduction as counters of a manifest; none if no program introduced itself.

    A printed time says no more than that the instant was within the value of its last digit. The first one counts from
    the beginning of that span and the last one up to its end, so that no program introduced itself before or after.

    Args:
        run_dir: has the output of the programs.
        nodes: the nodes of the run.
        start_ns: the start of the warm-up (ns).
        epoch_offset_ns: CLOCK_REALTIME - CLOCK_MONOTONIC (ns).
    """
    zero_ns = epoch_offset_ns + start_ns
    found = (time for node in nodes for time in _read(run_dir / output_file(node)))
    times = [time for time in found if abs(time.epoch_ns - zero_ns) <= LATEST_NS]
    if not times:
        return {}
    first_ns, last_ns = min(time.epoch_ns for time in times), max(time.last_ns for time in times)
    return {"introduced_ns_min": first_ns - zero_ns, "introduced_ns_max": last_ns - zero_ns}


def _read(path: Path) -> Iterator[PrintedTime]:
    """Yield when a program introduced itself, if it did."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in islice(iter(lambda: file.readline(MAX_LINE_BYTES), b""), MOST_LINES):
            try:
                said = read_line(line)
            except LineError:  # it is the reason why the peer ended
                return
            if isinstance(said, Identity):
                yield said.time
                return
