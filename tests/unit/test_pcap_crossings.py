"""Packets that left and arrived, as captures show them, and the hash by which one is found again."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.pcap.divided import divide_capture
from metrics.pcap.files import Capture
from metrics.pcap.tables import Reading, read_tables
from tests.synthetic_capture import ACK, INBOUND, OUTBOUND, PUSH, Packet, pcap, pcapng

SENT = Packet(1_000, 0, OUTBOUND, "10.0.0.1", 40000, "10.0.0.2", 7000, 2**32 - 1, 7, ACK | PUSH, b"x" * 9)
ARRIVED = replace(SENT, ts_ns=5_000, host=1, direction=INBOUND)
READING = Reading(("crossings",))


def crossings(path: Path, content: bytes, reading: Reading = READING) -> list[dict[str, int]]:
    path.write_bytes(content)
    return [row for name, table in read_tables(path, reading) if name == "crossings" for row in table.to_pylist()]


def test_a_packet_has_the_same_identity_where_it_left_and_where_it_arrived(tmp_path: Path) -> None:
    sent, arrived = crossings(tmp_path / "hosts.pcapng", b"".join(pcapng([SENT, ARRIVED], [0, 1])))
    assert sent["identity"] == arrived["identity"]
    assert (sent["is_tx"], arrived["is_tx"]) == (True, False)
    assert (sent["ts_ns"], arrived["ts_ns"], sent["wire_bytes"]) == (1_000, 5_000, len(SENT.ip_bytes()))
    assert (sent["src"], sent["dst"]) == (10 << 24 | 1, 10 << 24 | 2)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 8},
        {"ack": 8},
        {"src_port": 40001},
        {"dst_port": 1},
        {"flags": ACK},
        {"dst": "10.0.0.3"},
        {"payload": b""},
    ],
)
def test_packets_that_differ_in_a_header_have_different_identities(tmp_path: Path, change: dict[str, object]) -> None:
    other = replace(SENT, **change)
    one, two = crossings(tmp_path / "hosts.pcapng", b"".join(pcapng([SENT, other], [0, 1])))
    assert one["identity"] != two["identity"]


@given(st.integers(20, 60), st.binary(min_size=60, max_size=60))
def test_short_and_cut_packets_are_identified_by_what_was_kept(kept: int, content: bytes) -> None:
    """The same bytes give the same identity, whatever follows them in the file."""
    from metrics.pcap.headers import identify

    data = np.frombuffer(content[:kept] * 2, np.uint8)
    at, end = np.array([0, kept]), np.array([kept, 2 * kept])
    first, second = identify(data, at, end).tolist()
    assert first == second
    used = max(size for size in (20, 28, 40) if size <= kept)
    for changed in (used - 1, used):
        other = bytearray(content[:kept])
        if changed < kept:
            other[changed] ^= 1
        again = identify(np.frombuffer(bytes(other), np.uint8), np.array([0]), np.array([kept])).tolist()
        assert (again == [first]) is (changed >= used)


class Fragment(Packet):
    """A packet with the flag of IP that more fragments follow."""

    def ip_bytes(self, ip_options: bytes = b"", extension: bytes = b"") -> bytes:
        """The packet from its IP header on."""
        whole = super().ip_bytes(ip_options, extension)
        return whole[:6] + b"\x20\x00" + whole[8:]


def test_all_that_a_fragment_has_counts_as_payload(tmp_path: Path) -> None:
    fragment = Fragment(*(getattr(SENT, each.name) for each in fields(SENT)))
    rows = crossings(tmp_path / "hosts.pcapng", b"".join(pcapng([SENT, fragment], [0, 1])))
    assert [row["payload_bytes"] for row in rows] == [9, len(SENT.ip_bytes()) - 20]


def test_packets_of_ipv6_or_of_no_known_direction_do_not_cross(tmp_path: Path) -> None:
    six = replace(SENT, src="fd00::1", dst="fd00::2")
    assert len(crossings(tmp_path / "hosts.pcapng", b"".join(pcapng([SENT, six], [0, 1])))) == 1
    others = [(1, SENT.ip_bytes()), (2, replace(SENT, src="10.0.0.3", dst="10.0.0.4").ip_bytes())]
    assert crossings(tmp_path / "any.pcap", pcap(others, linktype=101)) == []


def test_a_divided_capture_has_the_same_crossings(tmp_path: Path) -> None:
    packets = [replace(SENT, ts_ns=number, seq=number, host=number % 2) for number in range(50)]
    content = b"".join(pcapng(packets, [0, 1]))
    whole = crossings(tmp_path / "hosts.pcapng", content)
    traced = tmp_path / "traced"
    traced.mkdir()
    capture = Capture(tmp_path / "hosts.pcapng", "hosts.pcapng")
    divide_capture(capture, tmp_path / "divided", 3, window_bytes=1024)
    found = []
    for part in range(3):
        reading = Reading(("crossings",), traced=traced, part=part, parts=3, divided=tmp_path / "divided")
        found += crossings(tmp_path / "hosts.pcapng", content, reading)
    assert sorted(found, key=lambda row: row["ts_ns"]) == whole
