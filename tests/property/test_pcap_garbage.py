"""Damaged captures: nothing raises, everything that is not understood is counted."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.pcap.files import read_bytes
from metrics.pcap.tables import Reading, read_tables
from tests.examples import examples
from tests.synthetic_capture import (
    ACK,
    INBOUND,
    LINK_HEADERS,
    OUTBOUND,
    SYN,
    Packet,
    enhanced,
    interface,
    old_packet,
    pcap,
    pcapng,
    section,
)

ALL = Reading(("packets", "conns", "frames", "spans", "wire", "captures"), foreign=True, retransmissions=True)
PACKETS = [
    Packet(
        10**9 + n,
        n % 2,
        OUTBOUND if n % 3 else INBOUND,
        "10.0.0.1",
        5,
        "10.0.0.2",
        6,
        n * 9,
        0,
        ACK if n else SYN,
        b"tR" * n,
    )
    for n in range(8)
]
SIX = Packet(10**9, 0, INBOUND, "fd00::2", 7000, "fd00::1", 40000, 5, 6, SYN | ACK)
WHOLE = [
    b"".join(pcapng(PACKETS, (0, 1))),
    b"".join(pcapng(PACKETS, (0, 1), order=">", snaplen=60)),
    pcap([(each.ts_ns, each.ip_bytes()) for each in [*PACKETS, SIX]]),
    pcap([(each.ts_ns, bytes(12) + b"\x08\x00" + each.ip_bytes()) for each in PACKETS], ">", nano=False, linktype=1),
    *(section(order) + interface("1", order) + old_packet(0, 7, PACKETS[3].ip_bytes(), order) for order in "<>"),
    pcap([(each.ts_ns, bytes(8) + each.ip_bytes()) for each in PACKETS], magic=0xA1B2CD34, nano=False),
    *(
        pcap([(each.ts_ns, head + each.ip_bytes()) for each in PACKETS], linktype=linktype)
        for linktype, head in LINK_HEADERS
    ),
    section() + interface("1", linktype=276) + enhanced(0, 1, b"\x08\x00" + bytes(18) + PACKETS[3].ip_bytes()),
]


def check(content: bytes) -> None:
    """Reads it all: bytes are records, known blocks or unread, packets add up, wire bytes add up."""
    records = read_bytes(np.frombuffer(content, np.uint8))
    assert 0 <= records.unread_bytes <= len(content)
    assert ((records.start + records.cap_bytes) <= len(content) - records.unread_bytes).all()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "h0.pcap"
        path.write_bytes(content)
        tables: dict[str, list[dict[str, int]]] = {}
        for name, table in read_tables(path, ALL):
            table.validate(full=True)
            tables.setdefault(name, []).extend(table.to_pylist())
    assert len(tables.get("packets", [])) == len(records)
    assert tables["captures"], "a file that cannot be read at all is said to be so"
    for row in tables["captures"]:
        natures = ("n_tcp", "n_other_ip", "n_fragments", "n_not_understood")
        assert row["packets"] == sum(row[name] for name in natures)
        assert row["unread_bytes"] == records.unread_bytes
    assert sum(row["packets"] for row in tables["captures"]) == len(records)
    for row in tables.get("wire", []):
        parts = ("payload_bytes", "retx_bytes", "header_bytes", "pure_ack_bytes", "datagram_bytes", "other_bytes")
        assert row["wire_bytes"] == sum(row[name] for name in parts)
    assert sum(row["wire_bytes"] for row in tables.get("wire", [])) == records.wire_bytes.sum()


@given(st.binary(max_size=400), st.sampled_from([b"", *[each[:60] for each in WHOLE]]))
@settings(max_examples=examples(300), deadline=None)
def test_garbage(content: bytes, head: bytes) -> None:
    check(head + content)


@given(st.sampled_from(WHOLE), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=12))
@settings(max_examples=examples(600), deadline=None)
def test_damaged_captures(content: bytes, damage: list[tuple[int, int]]) -> None:
    damaged = bytearray(content)
    for at, value in damage:
        damaged[at % len(damaged)] = value
    check(bytes(damaged))


@given(st.sampled_from(WHOLE), st.integers(0, 10**6))
@settings(max_examples=examples(200), deadline=None)
def test_cut_captures(content: bytes, at: int) -> None:
    check(content[: at % len(content)])
