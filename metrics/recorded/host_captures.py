"""Compare packets of sampled hosts in two captures: the data plane's own, and the kernel's at the host's device.

Both see the same bytes, so packets are matched by them: length, direction and the first ``KEY_BYTES`` bytes, which hold
all headers (identification, ports, sequence numbers, options). Packets that are equal in all of these are matched in
the order of time. A packet that only one capture has was lost or invented between the two. The difference of the two
timestamps of a packet is its wait: outbound from the kernel to the data plane's read, inbound from the data plane's
write to the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from metrics.changes import PairChanges
from metrics.pcap.files import read_bytes, read_windows
from metrics.pcap.flows import factorise
from metrics.pcap.records import RX, TX, HostRule, Records, Selection
from metrics.pcap.walk import gather
from metrics.recorded.stalls import Bools, Ints, Late, Stalls
from metrics.rundir import RunDir
from metrics.rundir.files import HOST_CAPTURE_FILE
from metrics.storage import Place
from metrics.storage.copies import map_bytes

KEY_BYTES = 64
"""The number of bytes that identify a packet; both captures keep at least as many, or the whole packet."""

WINDOW_BYTES = 32 << 20
"""How much of a capture file is read at a time."""

_PURPOSE = 0x68636170
_HEAD_BYTES = 1 << 20
_ANY_HOST = 1 << 31
_TO = slice(16, 20)
"""The offset of the destination in an IPv4 packet."""
_KEY = np.dtype(f"V{KEY_BYTES}")


class Waits(Struct, frozen=True):
    """The times between the two timestamps of packets, without their signs."""

    samples: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0  # the largest wait without the ``allowed`` largest ones
    max_ms: float = 0.0
    late: Late = Late(0, 0)  # waits beyond the limit
    reversed: int = 0  # late waits of packets that arrived before they were sent

    @property
    def allowed(self) -> int:
        """How many waits may be late: a hundredth, but at least one."""
        return allow(self.samples)


class HostCounts(Struct, frozen=True):
    """The packets of a host by two captures, in the judged span. A packet is in it by its own timestamp."""

    host: int
    pairs: int = 0  # packets that both have
    unread: int = 0  # outbound packets that only the kernel saw
    unsent: int = 0  # outbound packets that only the data plane saw
    undelivered: int = 0  # inbound packets that only the data plane saw
    unwritten: int = 0  # inbound packets that only the kernel saw
    kernel_dropped: int = 0  # packets that the capture in the host lacks over the whole run, by its own count
    plane_dropped: int = 0  # packets of the host that the data plane's capture lacks, likewise

    @property
    def excused(self) -> int:
        """Packets that one capture lacks and counts as dropped."""
        by_kernel = min(self.unsent + self.undelivered, self.kernel_dropped)
        return by_kernel + min(self.unread + self.unwritten, self.plane_dropped)

    @property
    def unmatched(self) -> int:
        """Packets in only one capture that no drop excuses."""
        return self.unread + self.unsent + self.undelivered + self.unwritten - self.excused

    @property
    def tested(self) -> int:
        """Packets that both captures can show."""
        return self.pairs + self.unmatched


class HostCaptures(Struct, frozen=True):
    """The two captures of the sampled hosts."""

    asked: int  # hosts that both captures should have
    counts: tuple[HostCounts, ...] = ()  # counts of hosts that both captures have
    outbound: Waits = Waits()
    inbound: Waits = Waits()

    def total(self, name: str) -> int:
        """Return the sum of a count over all hosts."""
        return sum(getattr(each, name) for each in self.counts)


@dataclass
class Seen:
    """A host's packets by one capture, in the order of the file."""

    tap: npt.NDArray[np.int8]
    at_ns: Ints
    wire_bytes: Ints
    keys: npt.NDArray[np.uint8]  # (n, KEY_BYTES) the first bytes, zeros after the end of a packet
    dropped: int = 0  # packets that the capture lacks

    def __len__(self) -> int:
        return len(self.tap)


class Matched(NamedTuple):
    """Rows of two captures: pairs of rows of the same packets, and rows of packets that only one capture has."""

    host: Ints
    plane: Ints
    host_only: Ints
    plane_only: Ints


def allow(samples: int) -> int:
    """Return how many of some samples may be beyond the limit of their 99th percentile."""
    return max(1, samples // 100)


def choose_hosts(seed: int, hosts: int, count: int) -> list[int]:
    """Return the sampled hosts, in order: ``count`` hosts from 0 to ``hosts`` - 1, or all.

    Args:
        seed: the seed of the run.
        hosts: the number of hosts.
        count: how many hosts to choose.
    """
    random = np.random.default_rng([seed, _PURPOSE])
    return sorted(random.permutation(hosts)[:count].tolist())


def compare_captures(run_dir: Place) -> HostCaptures | None:
    """Compare the captures of a run; None if it should not have captures in hosts."""
    run = RunDir(run_dir)
    capture = run.experiment.get("capture", {})
    asked = capture.get("enabled") and run.manifest.has_ability("certify")
    count = capture.get("checked_hosts", 0) if asked else 0
    sampled = choose_hosts(run.plan.seed, 1 + max(place.host for place in run.plan.placement), count)
    if not sampled:
        return None
    path = run.path / HOST_CAPTURE_FILE
    captures = ([path] if path.is_file() else [], run.captures)
    limit_ns = round(run.experiment["verdict"]["lateness_p99_ms"] * 1e6)
    tally = Tally(run.judged_ns, limit_ns, run.stalls, Cuts.of(run))
    for host in sampled:
        seen, said = (read_seen(files, host, run.manifest.epoch_offset_ns) for files in captures)
        if seen is not None and said is not None:
            tally.add(host, seen, said)
    return tally.result(len(sampled))


def read_seen(
    files: Sequence[Place], host: int, epoch_offset_ns: int = 0, window_bytes: int = WINDOW_BYTES
) -> Seen | None:
    """Read the packets of a host; None if no file describes the host.

    Args:
        files: capture files.
        host: the number of the host.
        epoch_offset_ns: subtracted from all timestamps.
        window_bytes: how much of a file is read at a time.
    """
    for path in files:
        data = map_bytes(path)
        if host not in {each.host for each in read_bytes(data[:_HEAD_BYTES], HostRule(path.name)).interfaces}:
            continue
        windows = list(read_windows(data, HostRule(path.name), window_bytes, Selection(host, _ANY_HOST, by_host=True)))
        columns = zip(*map(_digest, windows), strict=True)
        tap, at_ns, wire_bytes, keys = (np.concatenate(parts) for parts in columns)
        dropped = sum(each.dropped or 0 for each in windows[-1].interfaces if each.host == host)
        return Seen(tap, at_ns - epoch_offset_ns, wire_bytes, keys, dropped)
    return None


def match(host: Seen, plane: Seen) -> Matched:
    """Match the packets of two captures of a host."""
    key, count = factorise(
        _encode(np.concatenate([host.keys, plane.keys])),
        np.concatenate([host.wire_bytes, plane.wire_bytes]),
        np.concatenate([host.tap, plane.tap]),
    )
    ours, theirs = (
        _Sorted.of(*part, count) for part in ((key[: len(host)], host.at_ns), (key[len(host) :], plane.at_ns))
    )
    common = np.minimum(ours.counts, theirs.counts)
    unequal = (ours.counts != theirs.counts) & (common > 0)
    paired = [ours.first(np.where(unequal, 0, common)), theirs.first(np.where(unequal, 0, common))]
    for each in np.flatnonzero(unequal).tolist():
        rows, others = ours.rows_of(each), theirs.rows_of(each)
        left, right = align(host.at_ns[rows].tolist(), plane.at_ns[others].tolist())
        paired = [np.concatenate(both) for both in zip(paired, (rows[left], others[right]), strict=True)]
    return Matched(paired[0], paired[1], _missing(paired[0], len(host)), _missing(paired[1], len(plane)))


def align(ours_ns: Sequence[int], theirs_ns: Sequence[int]) -> tuple[list[int], list[int]]:
    """Pair all instants of the shorter of two ascending lists with instants of the longer one, in order.

    An instant is left out if the next one is closer.

    Returns:
        The indices of the pairs in both lists.
    """
    if len(ours_ns) > len(theirs_ns):
        right, left = align(theirs_ns, ours_ns)
        return left, right
    found, at, spare = [], 0, len(theirs_ns) - len(ours_ns)
    for instant_ns in ours_ns:
        while spare and abs(theirs_ns[at + 1] - instant_ns) < abs(theirs_ns[at] - instant_ns):
            at, spare = at + 1, spare - 1
        found.append(at)
        at += 1
    return list(range(len(ours_ns))), found


class Cuts:
    """The cuts of a run, for the packets of its hosts.

    Args:
        changes: the changes of pairs of hosts.
        hosts: the hosts' numbers by their addresses.
    """

    def __init__(self, changes: PairChanges, hosts: Mapping[int, int]) -> None:
        self._changes, self._hosts = changes, hosts

    @classmethod
    def of(cls, run: RunDir) -> Cuts:
        """Read the cuts of a run from its directory."""
        hosts = {int(IPv4Address(place.wan_ip)): place.host for place in run.plan.placement if place.wan_ip}
        return cls(PairChanges.of(run), hosts)

    def refused(self, host: int, seen: Seen, rows: Ints, limit_ns: int) -> Bools:
        """Return which rows left a host for a cut pair, so that they did not enter the network, (n,).

        The data plane read them up to ``limit_ns`` later.

        Args:
            host: the number of the host.
            seen: the packets of the host.
            rows: (n,) rows of ``seen``.
            limit_ns: the longest wait before the data plane's read.
        """
        to = seen.keys[rows, _TO].copy().view(">u4").ravel()
        there = np.array([self._hosts.get(address, -1) for address in to.tolist()], np.int64)
        at_ns = seen.at_ns[rows]
        met = self._changes.meet(np.full(len(rows), host), there, at_ns, at_ns + limit_ns, which="cut")
        return np.asarray((seen.tap[rows] == TX) & met)


NO_CUTS = Cuts(PairChanges((), 0), {})


class Tally:
    """Adds up the comparisons of several hosts."""

    def __init__(self, span_ns: tuple[int, int], limit_ns: int, stalls: Stalls, cuts: Cuts = NO_CUTS) -> None:
        """Begin without hosts.

        Args:
            span_ns: the judged span.
            limit_ns: waits beyond it are late.
            stalls: the stalls of the run.
            cuts: the cuts of the run.
        """
        self._span_ns, self._limit_ns, self._stalls, self._cuts = span_ns, limit_ns, stalls, cuts
        self._counts: list[HostCounts] = []
        self._instants: dict[int, list[tuple[Ints, Ints]]] = {TX: [], RX: []}

    def add(self, number: int, host: Seen, plane: Seen) -> None:
        """Add a host with both of its captures.

        Args:
            number: the number of the host.
            host: the packets in the capture at the host's device.
            plane: the packets in the data plane's capture.
        """
        found = match(host, plane)
        kept = self._is_judged(host.at_ns[found.host])
        ours, theirs = found.host[kept], found.plane[kept]
        unread = found.host_only[self._is_judged(host.at_ns[found.host_only])]
        host_only = host.tap[unread[~self._cuts.refused(number, host, unread, self._limit_ns)]]
        plane_only = plane.tap[found.plane_only[self._is_judged(plane.at_ns[found.plane_only])]]
        counts = HostCounts(
            number,
            pairs=len(ours),
            unread=int((host_only == TX).sum()),
            unwritten=int((host_only != TX).sum()),
            unsent=int((plane_only == TX).sum()),
            undelivered=int((plane_only != TX).sum()),
            kernel_dropped=host.dropped,
            plane_dropped=plane.dropped,
        )
        self._counts.append(counts)
        is_outbound, kernel_ns, plane_ns = host.tap[ours] == TX, host.at_ns[ours], plane.at_ns[theirs]
        self._instants[TX].append((kernel_ns[is_outbound], plane_ns[is_outbound]))
        self._instants[RX].append((plane_ns[~is_outbound], kernel_ns[~is_outbound]))

    def result(self, asked: int) -> HostCaptures:
        """Return what was found. ``asked``: hosts that both captures should have."""
        return HostCaptures(asked, tuple(self._counts), outbound=self._waits(TX), inbound=self._waits(RX))

    def _is_judged(self, at_ns: Ints) -> Bools:
        start_ns, end_ns = self._span_ns
        return np.asarray((start_ns <= at_ns) & (at_ns < end_ns))

    def _waits(self, tap: int) -> Waits:
        parts = self._instants[tap]
        if not parts:
            return Waits()
        due_ns, came_ns = (np.concatenate(column) for column in zip(*parts, strict=True))
        if not len(due_ns):
            return Waits()
        wait_ns = np.abs(came_ns - due_ns)
        late = wait_ns > self._limit_ns
        explained = int(self._stalls.excuse(due_ns, came_ns, self._limit_ns).sum())
        last = len(wait_ns) - 1
        ranks = last // 2, max(0, last - allow(len(wait_ns))), last
        p50_ms, p99_ms, max_ms = (np.partition(wait_ns, ranks)[list(ranks)] / 1e6).tolist()
        of_late = Late(int(late.sum()), explained)
        return Waits(len(wait_ns), p50_ms, p99_ms, max_ms, of_late, int((late & (came_ns < due_ns)).sum()))


@dataclass
class _Sorted:
    """Rows of a capture by key and then by time."""

    rows: Ints
    key: Ints  # the key of each row
    starts: Ints  # the first row of each key
    counts: Ints  # the number of rows of each key

    @classmethod
    def of(cls, key: Ints, at_ns: Ints, count: int) -> _Sorted:
        rows = np.lexsort((at_ns, key))
        counts = np.bincount(key, minlength=count)
        return cls(rows, key[rows], np.cumsum(counts) - counts, counts)

    def first(self, wanted: Ints) -> Ints:
        """Return the first rows of each key, as many as wanted."""
        rank = np.arange(len(self.rows)) - self.starts[self.key]
        return np.asarray(self.rows[rank < wanted[self.key]])

    def rows_of(self, key: int) -> Ints:
        return self.rows[self.starts[key] : self.starts[key] + self.counts[key]]


def _missing(rows: Ints, count: int) -> Ints:
    """Return the rows of ``count`` rows that are not among ``rows``."""
    missing = np.ones(count, np.bool_)
    missing[rows] = False
    return np.flatnonzero(missing)


def _encode(keys: npt.NDArray[np.uint8]) -> Ints:
    """Return a number for each different key."""
    buffer = pa.py_buffer(np.ascontiguousarray(keys))
    encoded = pa.Array.from_buffers(pa.binary(KEY_BYTES), len(keys), [None, buffer]).dictionary_encode()
    return np.asarray(encoded.indices.to_numpy().astype(np.int64))


def _digest(records: Records) -> tuple[npt.NDArray[Any], ...]:
    """Return the columns of ``Seen`` for some packets."""
    keys = np.zeros((len(records), KEY_BYTES), np.uint8)
    whole = records.start + KEY_BYTES <= len(records.data)
    keys[whole] = gather(records.data, records.start[whole], _KEY).view(np.uint8).reshape(-1, KEY_BYTES)
    for row in np.flatnonzero(~whole).tolist():
        rest = records.data[records.start[row] :]
        keys[row, : len(rest)] = rest
    keys[np.arange(KEY_BYTES) >= records.cap_bytes[:, None]] = 0
    return records.tap, records.ts_ns, records.wire_bytes, keys
