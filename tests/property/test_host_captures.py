"""Two captures of a host: what random drops, copies and reorderings make of them is found exactly."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metrics.pcap.records import RX, TX
from metrics.recorded.host_captures import KEY_BYTES, Seen, Tally, align, match
from tests.sound_evidence import NO_STALLS

APART_NS, LONGEST_NS = 10, 1000
ALWAYS = (-(1 << 62), 1 << 62)


@dataclass(frozen=True)
class Packet:
    """A packet that both captures should have; equal ``content`` and ``tap`` make packets equal."""

    content: int
    tap: int
    wait_ns: int
    lost: bool


def packets(contents: st.SearchStrategy[int], longest_wait_ns: int) -> st.SearchStrategy[list[Packet]]:
    taps, waits = st.sampled_from((TX, RX)), st.integers(0, longest_wait_ns)
    return st.lists(st.builds(Packet, contents, taps, waits, st.booleans()), max_size=40)


def seen(rows: Sequence[tuple[int, int, int]]) -> Seen:
    """A capture of (content, tap, instant). Three contents each share their bytes and differ in length."""
    keys = np.zeros((len(rows), KEY_BYTES), np.uint8)
    for row, (content, _, _) in enumerate(rows):
        keys[row, -8:] = np.frombuffer((content // 3 * 3).to_bytes(8, "big"), np.uint8)
    content, tap, at_ns = np.array(rows, np.int64).reshape(-1, 3).T
    return Seen(tap.astype(np.int8), at_ns, 60 + content % 3, keys)


def lost_by_host(packet: Packet) -> bool:
    """Of equal packets only one capture loses some, or nobody could say which."""
    return bool(packet.content % 2)


def captures(sent: Sequence[Packet]) -> tuple[Seen, Seen, set[int], set[int]]:
    """Both captures in the order of time, and the instants in them of packets that only one of them has."""
    ours, theirs = [], []
    for number, packet in enumerate(sent):
        at_ns = APART_NS * number
        if not (packet.lost and lost_by_host(packet)):
            ours.append((packet.content, packet.tap, at_ns))
        if not packet.lost or lost_by_host(packet):
            theirs.append((packet.content, packet.tap, at_ns + packet.wait_ns))
    theirs.sort(key=lambda row: row[2])
    lost = [(APART_NS * number, packet) for number, packet in enumerate(sent) if packet.lost]
    host_only = {at_ns for at_ns, packet in lost if not lost_by_host(packet)}
    plane_only = {at_ns + packet.wait_ns for at_ns, packet in lost if lost_by_host(packet)}
    return seen(ours), seen(theirs), host_only, plane_only


def check(sent: Sequence[Packet]) -> None:
    host, plane, host_only, plane_only = captures(sent)
    found = match(host, plane)
    assert set(host.at_ns[found.host_only].tolist()) == host_only
    assert sorted(plane.at_ns[found.plane_only].tolist()) == sorted(plane_only)
    waits = {APART_NS * number: packet.wait_ns for number, packet in enumerate(sent) if not packet.lost}
    measured = plane.at_ns[found.plane] - host.at_ns[found.host]
    assert dict(zip(host.at_ns[found.host].tolist(), measured.tolist(), strict=True)) == waits


@given(packets(st.integers(0, 5), APART_NS // 2 - 1))
def test_equal_packets_are_matched_in_the_order_of_time(sent: list[Packet]) -> None:
    check(sent)


@given(packets(st.just(0), LONGEST_NS))
def test_different_packets_are_matched_however_they_overtake_each_other(drawn: list[Packet]) -> None:
    check([Packet(number, packet.tap, packet.wait_ns, packet.lost) for number, packet in enumerate(drawn)])


@given(packets(st.integers(0, 5), LONGEST_NS))
def test_the_number_of_packets_in_one_capture_only_is_exact(sent: list[Packet]) -> None:
    """Even where equal packets overtake each other, so that nobody can say which of them was lost."""
    host, plane, host_only, _ = captures(sent)
    tally = Tally(ALWAYS, 0, NO_STALLS)
    tally.add(0, host, plane)
    found = tally.result(1)
    by_tap = [sum(packet.tap == tap and packet.lost for packet in sent) for tap in (TX, RX)]
    assert found.total("unread") + found.total("unwritten") == len(host_only)
    assert [
        found.total("unread") + found.total("unsent"),
        found.total("unwritten") + found.total("undelivered"),
    ] == by_tap
    assert (
        found.total("pairs")
        == found.outbound.samples + found.inbound.samples
        == sum(not packet.lost for packet in sent)
    )
    assert found.total("unmatched") == sum(packet.lost for packet in sent)


instants = st.lists(st.integers(0, 1000), max_size=20).map(sorted)


@given(instants, instants)
def test_an_alignment_keeps_the_order_and_all_of_the_shorter_list(ours: list[int], theirs: list[int]) -> None:
    left, right = align(ours, theirs)
    assert len(left) == len(right) == min(len(ours), len(theirs))
    for rows, count in ((left, len(ours)), (right, len(theirs))):
        assert rows == sorted(set(rows))
        assert all(0 <= row < count for row in rows)
