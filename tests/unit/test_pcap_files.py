"""Capture formats, link layers and headers: every field of every packet, and the vectorised walk against the loop."""

import random
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.testbeds.emulated.dataplane import pcapng as plane
from metrics.pcap import walk
from metrics.pcap.files import read_bytes
from metrics.pcap.tables import Reading, read_tables
from tests.synthetic_capture import (
    ACK,
    INBOUND,
    OUTBOUND,
    PUSH,
    SYN,
    Packet,
    block,
    enhanced,
    interface,
    option,
    pcap,
    pcapng,
    section,
)

START_NS = 1_700_000_000 * 10**9
FOUR = Packet(
    START_NS + 123_456_789, 3, OUTBOUND, "10.0.0.1", 40000, "10.0.0.2", 7000, 2**32 - 1, 7, ACK | PUSH, b"x" * 9
)
SIX = Packet(START_NS + 5, 3, INBOUND, "fd00::2", 7000, "fd00::1", 40000, 5, 6, SYN | ACK)
EXTENSION = bytes([43, 0]) + bytes(6) + bytes([6, 1]) + bytes(14)  # destination options, then routing, then TCP


def read_packets(path: Path, content: bytes) -> list[dict[str, object]]:
    path.write_bytes(content)
    tables = [table for _, table in read_tables(path, Reading(("packets",)))]
    return pa.concat_tables(tables).to_pylist() if tables else []


def test_every_field_of_a_packet(tmp_path: Path) -> None:
    content = b"".join(pcapng([FOUR], (3,), snaplen=56))
    (row,) = read_packets(tmp_path / "a.pcapng", content)
    assert row == {
        "ts_ns": FOUR.ts_ns, "host": 3, "tap": "tx", "src_ip": "10.0.0.1", "src_port": 40000, "dst_ip": "10.0.0.2",
        "dst_port": 7000, "proto": 6, "tcp_flags": ACK | PUSH, "seq": 2**32 - 1, "ack": 7, "window": 65535,
        "payload_bytes": 9, "wire_bytes": 61, "cap_bytes": 56, "is_retx": None, "pcap_file": "a.pcapng",
        "pcap_off": len(pcapng([], (3,))[0]),
    }  # fmt: skip


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("nano", [True, False])
def test_classic_files(tmp_path: Path, order: str, nano: bool) -> None:
    content = pcap([(FOUR.ts_ns, FOUR.ip_bytes()), (SIX.ts_ns, SIX.ip_bytes())], order, nano)
    four, six = read_packets(tmp_path / "host-12.pcap", content)
    unit = 1 if nano else 1000
    assert [four["ts_ns"], six["ts_ns"]] == [FOUR.ts_ns // unit * unit, SIX.ts_ns // unit * unit]
    assert [four["host"], four["pcap_off"], six["pcap_off"]] == [12, 24, 24 + 16 + len(FOUR.ip_bytes())]
    assert [six["src_ip"], six["dst_ip"], six["seq"]] == ["fd00::2", "fd00::1", 5]


@pytest.mark.parametrize(
    ("linktype", "head"),
    [
        (1, bytes(12) + b"\x08\x00"),
        (1, bytes(12) + b"\x81\x00\x00\x05\x08\x00"),
        (1, bytes(12) + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x08\x00"),
        (101, b""),
        (228, b""),
        (113, b"\x00\x04" + bytes(12) + b"\x08\x00"),
        (276, b"\x08\x00" + bytes(8) + b"\x04" + bytes(9)),
    ],
)
def test_link_layers(tmp_path: Path, linktype: int, head: bytes) -> None:
    (row,) = read_packets(tmp_path / "a.pcap", pcap([(FOUR.ts_ns, head + FOUR.ip_bytes())], linktype=linktype))
    assert [row["src_ip"], row["dst_port"], row["seq"], row["payload_bytes"]] == ["10.0.0.1", 7000, 2**32 - 1, 9]
    assert row["wire_bytes"] == len(head) + 61
    assert row["tap"] == ("tx" if linktype in (113, 276) else "mid")


def test_ip_options_and_ipv6_extensions(tmp_path: Path) -> None:
    packets = [(1, FOUR.ip_bytes(ip_options=bytes(8))), (2, SIX.ip_bytes(extension=EXTENSION))]
    four, six = read_packets(tmp_path / "a.pcap", pcap(packets))
    assert [four["seq"], four["payload_bytes"], four["src_port"]] == [2**32 - 1, 9, 40000]
    assert [six["seq"], six["payload_bytes"], six["src_port"], six["proto"]] == [5, 0, 7000, 6]


def test_what_is_not_understood_is_counted(tmp_path: Path) -> None:
    four = FOUR.ip_bytes()
    fragment = four[:6] + b"\x20\x00" + four[8:]
    icmp = four[:9] + b"\x01" + four[10:]
    short_header = four[:32] + b"\x10" + four[33:]
    packets = [four, fragment, icmp, short_header, four[:30], b"", b"\x60", b"\x4f" + four[1:20], bytes(60)]
    path = tmp_path / "h1.pcap"
    path.write_bytes(pcap([(number, each) for number, each in enumerate(packets)]))
    tables = dict(read_tables(path, Reading(("captures", "wire"))))
    (row,) = tables["captures"].to_pylist()
    counts = {name: row[name] for name in ("packets", "n_tcp", "n_fragments", "n_other_ip", "n_not_understood")}
    assert counts == {"packets": 9, "n_tcp": 1, "n_fragments": 1, "n_other_ip": 1, "n_not_understood": 6}
    (wire,) = tables["wire"].drop(["tap", "vantage_host", "at_ns"]).group_by([]).aggregate(
        [(name, "sum") for name in ("wire_bytes", "payload_bytes", "header_bytes", "other_bytes")]
    ).to_pylist()  # fmt: skip
    assert wire["wire_bytes_sum"] == sum(map(len, packets))
    assert wire["payload_bytes_sum"] + wire["header_bytes_sum"] == len(four)
    assert wire["other_bytes_sum"] == sum(map(len, packets)) - len(four)


def test_pcapng_sections_of_both_orders_with_all_kinds_of_blocks() -> None:
    content = b""
    for order in "<>":
        drops = option(5, struct.pack(f"{order}Q", 4), order) + option(7, struct.pack(f"{order}Q", 3), order)
        comment = option(1, b"a comment", order)
        content += section(order) + interface("3", order) + interface("9", order, linktype=1)
        content += enhanced(1, 77, b"abc", order, INBOUND) + enhanced(0, 78, b"abcd", order, OUTBOUND, before=comment)
        content += block(3, struct.pack(f"{order}I", 5) + b"hello", order)
        content += block(5, struct.pack(f"{order}III", 1, 0, 0) + drops, order) + block(0xBAD, b"?", order)
        content += enhanced(2, 79, b"no such interface", order)
    records = read_bytes(np.frombuffer(content, np.uint8))
    assert records.ts_ns.tolist() == [77, 78, 78] * 2
    assert records.tap.tolist() == [2, 1, 0] * 2
    assert records.interface.tolist() == [1, 0, 0, 3, 2, 2]
    assert records.cap_bytes.tolist() == [3, 4, 5] * 2
    assert [each.name for each in records.interfaces] == ["3", "9"] * 2
    assert [each.dropped for each in records.interfaces] == [None, 7] * 2
    assert (records.unknown_blocks, records.unread_bytes) == (4, 0)


@pytest.mark.parametrize(
    ("options", "ticks", "ts_ns"),
    [
        (b"\x00", 1_700_000_000_123_456, 1_700_000_000_123_456_000),  # no resolution: microseconds
        (option(9, b"\x03"), 1_700_000_000_123, 1_700_000_000_123_000_000),
        (option(9, b"\x0c"), 1_000_000_123_456, 1_000_000_123),
        (option(9, b"\x8a"), (5 << 10) + 512, 5_500_000_000),
        (option(9, b"\xa0"), (1_700_000_000 << 32) + (1 << 31), 1_700_000_000_500_000_000),
        (option(9, b"\x09") + option(14, struct.pack("<q", -10)), 12 * 10**9, 2 * 10**9),
    ],
)
def test_pcapng_resolutions_and_offsets(options: bytes, ticks: int, ts_ns: int) -> None:
    content = section() + interface("1", options=options) + enhanced(0, ticks, b"abc")
    assert read_bytes(np.frombuffer(content, np.uint8)).ts_ns.tolist() == [ts_ns]


def many_packets(count: int, seed: int) -> list[tuple[int, bytes]]:
    rng = random.Random(seed)
    return [(START_NS + number * 1000, rng.randbytes(rng.randrange(40, 400))) for number in range(count)]


@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
def test_lockstep_and_loop_find_the_same_records(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packets = many_packets(4000, seed=1)
    content = pcap(packets)
    if kind == "pcapng":
        content = section() + interface("1") + b"".join(enhanced(0, ts_ns, data) for ts_ns, data in packets)
    proofs = []
    original = walk.lockstep

    def observed(*given: object) -> object:
        proofs.append(original(*given))  # type: ignore[arg-type]
        return proofs[-1]

    monkeypatch.setattr(walk, "lockstep", observed)
    for cut in (0, 1, 17, 100, 5000):
        data = np.frombuffer(content[: len(content) - cut], np.uint8)
        fast = read_bytes(data)
        monkeypatch.setattr(walk, "CURSORS", 1)
        slow = read_bytes(data)
        monkeypatch.setattr(walk, "CURSORS", 384)
        assert fast.at.tolist() == slow.at.tolist()
        assert fast.unread_bytes == slow.unread_bytes
    assert len(proofs) == 5 and all(proof is not None for proof in proofs)


def test_captures_inside_captures_cost_no_record() -> None:
    inner = pcap(many_packets(2000, seed=2))
    pieces = [inner[at : at + 1400] for at in range(0, len(inner), 1400)]
    outer = pcap([(START_NS + number, piece) for number, piece in enumerate(pieces)])
    records = read_bytes(np.frombuffer(outer, np.uint8))
    assert records.cap_bytes.tolist() == [len(piece) for piece in pieces]


def test_a_capture_without_directions_learns_them_from_the_address_in_every_packet(tmp_path: Path) -> None:
    packets = [
        Packet(START_NS, 0, 0, "10.0.0.1", 1, "10.0.0.2", 2, 0, 0, SYN),
        Packet(START_NS, 0, 0, "10.0.0.3", 3, "10.0.0.1", 4, 0, 0, SYN),
    ]
    rows = read_packets(tmp_path / "a.pcap", pcap([(each.ts_ns, each.ip_bytes()) for each in packets]))
    assert [row["tap"] for row in rows] == ["tx", "rx"]


@pytest.mark.parametrize("content", [b"", b"\x0a\x0d\x0d\x0a", b"no capture at all", pcap([])[:10], pcap([])])
def test_empty_and_foreign_files(tmp_path: Path, content: bytes) -> None:
    assert read_packets(tmp_path / "x.pcap", content) == []
    for name, table in read_tables(tmp_path / "x.pcap", Reading(("conns", "frames", "wire"))):
        assert len(table) == 0, name


def test_parts_make_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "many.pcapng"
    rng = random.Random(5)
    packets = [
        Packet(START_NS + n, rng.randrange(5), OUTBOUND, "10.0.0.1", n % 7 + 1, "10.0.0.2", 9, n, 0, ACK, b"ab")
        for n in range(500)
    ]
    path.write_bytes(b"".join(pcapng(packets, range(5))))
    for table in ("packets", "conns"):
        whole = pa.concat_tables([each for _, each in read_tables(path, Reading((table,)))])
        parts = [
            each for part in range(3) for _, each in read_tables(path, Reading((table,), part=part, parts=3))
        ]  # fmt: skip
        key = [(name, "ascending") for name in ("ts_ns", "pcap_off" if table == "packets" else "uid")]
        key += [("vantage_host", "ascending")] if table == "conns" else []
        assert pa.concat_tables(parts).sort_by(key).equals(whole.sort_by(key))


def test_unknown_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="expected some of packets, conns"):
        Reading(("packet",))


def test_what_the_data_plane_writes_is_read(tmp_path: Path) -> None:
    forms = plane.PacketForms(96)
    packet = forms.packet(1, plane.OUTBOUND, FOUR.ts_ns, FOUR.ip_bytes())
    heads = plane.section_header() + plane.interface("32", 96) + plane.interface("33", 96)
    path = tmp_path / "hosts-1.pcapng"
    path.write_bytes(heads + packet + plane.statistics(1, START_NS, START_NS + 9, received=6, dropped=5))
    (row,) = dict(read_tables(path, Reading(("packets",), retransmissions=True)))["packets"].to_pylist()
    assert [row["host"], row["tap"], row["ts_ns"], row["seq"], row["is_retx"]] == [
        33,
        "tx",
        FOUR.ts_ns,
        FOUR.seq,
        False,
    ]
    captures = dict(read_tables(path, Reading(("captures",))))["captures"]
    assert captures["dropped"].to_pylist() == [None, 5]
