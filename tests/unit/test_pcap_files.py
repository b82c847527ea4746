"""Capture formats, link layers and headers: every field of every packet, and the vectorised walk against the loop."""

import gzip
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness.planes import pcapng as plane
from metrics.pcap import walk
from metrics.pcap.files import CaptureError, read_bytes
from metrics.pcap.tables import Reading, read_tables
from tests.synthetic_capture import (
    ACK,
    INBOUND,
    LINK_HEADERS,
    OUTBOUND,
    PUSH,
    SYN,
    Packet,
    block,
    enhanced,
    interface,
    old_packet,
    option,
    pcap,
    pcapng,
    section,
)

START_NS = 1_700_000_000 * 10**9
FOUR = Packet(
    START_NS + 123_456_789, 3, OUTBOUND, "10.0.0.1", 40000, "10.0.0.2", 7000, 2**32 - 1, 7, ACK | PUSH, b"x" * 9
)
BACK = Packet(START_NS + 1, 3, 0, "10.0.0.3", 7000, "10.0.0.1", 40000, 7, 8, ACK)
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


@pytest.mark.parametrize(("linktype", "head"), LINK_HEADERS)
def test_link_layers(tmp_path: Path, linktype: int, head: bytes) -> None:
    (row,) = read_packets(tmp_path / "a.pcap", pcap([(FOUR.ts_ns, head + FOUR.ip_bytes())], linktype=linktype))
    assert [row["src_ip"], row["dst_port"], row["seq"], row["payload_bytes"]] == ["10.0.0.1", 7000, 2**32 - 1, 9]
    assert row["wire_bytes"] == len(head) + 61
    assert row["tap"] == ("tx" if linktype in (113, 276) else "mid")


@pytest.mark.parametrize(
    ("linktype", "head"),
    [
        (229, b""),
        *((0, family.to_bytes(4, order)) for family in (10, 23, 24, 28, 30) for order in ("little", "big")),
        (1, bytes(12) + b"\x86\xdd"),
        (1, bytes(12) + b"\x88\x64\x11\x00\x00\x01\x00\x40\x00\x57"),
        (1, bytes(12) + b"\x88\x48\x00\x01\x01\x40"),
    ],
)
def test_link_layers_of_ipv6(tmp_path: Path, linktype: int, head: bytes) -> None:
    (row,) = read_packets(tmp_path / "a.pcap", pcap([(SIX.ts_ns, head + SIX.ip_bytes())], linktype=linktype))
    assert [row["src_ip"], row["dst_port"], row["seq"]] == ["fd00::2", 40000, 5]


@pytest.mark.parametrize(
    ("linktype", "head"),
    [
        (0, b"\x00\x02\x00\x00"),
        (0, b"\x07\x00\x00\x00"),
        (0, b"\x1e\x00\x00\x00"),
        (1, bytes(12) + b"\x08\x06"),
        (1, bytes(12) + b"\x88\x64\x11\x00\x00\x01\x00\x40\xc0\x21"),
        (1, bytes(12) + b"\x81\x00\x00\x05" * 9 + b"\x08\x00"),
        (9, b"\xff\x03\x00\x21"),
    ],
)
def test_other_link_layers_are_counted_as_not_understood(tmp_path: Path, linktype: int, head: bytes) -> None:
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap([(FOUR.ts_ns, head + FOUR.ip_bytes())], linktype=linktype))
    (row,) = dict(read_tables(path, Reading(("captures",))))["captures"].to_pylist()
    assert [row["packets"], row["n_not_understood"]] == [1, 1]


@pytest.mark.parametrize(("linktype", "head"), [(each, head) for each, head in LINK_HEADERS if head])
def test_cut_link_layers_are_counted_as_not_understood(tmp_path: Path, linktype: int, head: bytes) -> None:
    path = tmp_path / "a.pcap"
    cuts = [head[:size] for size in range(len(head) + 1)]
    path.write_bytes(pcap([(FOUR.ts_ns, each) for each in cuts], linktype=linktype))
    (row,) = dict(read_tables(path, Reading(("captures",))))["captures"].to_pylist()
    assert row["n_not_understood"] == len(cuts)


@pytest.mark.parametrize(("linktype", "rest"), [(113, bytes(12) + b"\x08\x00"), (276, None)])
def test_cooked_packets_have_directions(tmp_path: Path, linktype: int, rest: bytes | None) -> None:
    """Those between other hosts have none, even if all have the same address."""
    packets = []
    for kind in range(5):
        head = bytes([0, kind]) + rest if rest else b"\x08\x00" + bytes(8) + bytes([kind]) + bytes(9)
        packets.append((START_NS + kind, head + FOUR.ip_bytes()))
    rows = read_packets(tmp_path / "a.pcap", pcap(packets, linktype=linktype))
    assert [row["tap"] for row in rows] == ["rx", "rx", "rx", "mid", "tx"]
    other = [
        (START_NS + n, packets[3][1][: 20 if rest is None else 16] + each.ip_bytes())
        for n, each in enumerate((FOUR, BACK))
    ]
    rows = read_packets(tmp_path / "b.pcap", pcap(other, linktype=linktype))
    assert [row["tap"] for row in rows] == ["mid", "mid"]
    tables = dict(read_tables(tmp_path / "a.pcap", Reading(("wire",))))
    assert sorted(tables["wire"]["tap"].to_pylist()) == ["mid", "rx", "tx"]


def test_modified_pcap_has_longer_record_headers(tmp_path: Path) -> None:
    for order in "<>":
        whole = pcap([(FOUR.ts_ns, FOUR.ip_bytes())], order, nano=False, magic=0xA1B2CD34)
        content = whole[:40] + bytes(8) + whole[40:]
        (row,) = read_packets(tmp_path / "a.pcap", content)
        assert [row["src_ip"], row["seq"], row["payload_bytes"]] == ["10.0.0.1", 2**32 - 1, 9]


@pytest.mark.parametrize("order", "<>")
def test_old_packet_blocks_are_packets(order: str) -> None:
    content = section(order) + interface("3", order) + interface("9", order)
    content += old_packet(1, 77, b"abc", order, INBOUND, drops=0xFFFF) + enhanced(1, 78, b"abcde", order)
    content += old_packet(0, 79, b"ab", order, OUTBOUND, drops=5) + old_packet(2, 80, b"no such interface", order)
    content += block(2, bytes(16), order)
    records = read_bytes(np.frombuffer(content, np.uint8))
    assert records.ts_ns.tolist() == [77, 78, 79]
    assert records.interface.tolist() == [1, 1, 0]
    assert records.cap_bytes.tolist() == records.wire_bytes.tolist() == [3, 5, 2]
    assert records.tap.tolist() == [2, 0, 1]
    assert (records.unknown_blocks, records.unread_bytes) == (1, 28)


@pytest.mark.parametrize(
    ("file_name", "if_name", "host"),
    [
        ("hosts-001.pcapng", "32", 32),
        ("hosts-001.pcapng", "wan0", None),
        ("host-12.pcap", "", 12),
        ("Host12.pcap", "eth0", 12),
        ("node_3.pcapng", "", 3),
        ("peer7.pcap.gz", "", 7),
        ("h4-eth0.pcap", "h4-eth0", 4),
        ("n0.pcap1", "", 0),
        ("capture-2026-11-27.pcap", "", None),
        ("20261127.pcap", "", None),
        ("eth0.pcap", "", None),
        ("rot-00001.pcap", "", None),
        ("host-12-rtt-50.pcap", "", None),
        ("host1234567890.pcap", "", None),
        ("x.pcap", "1234567890", None),
        ("x.pcap", "\u0663", None),
    ],
)
def test_hosts_of_interfaces(tmp_path: Path, file_name: str, if_name: str, host: int | None) -> None:
    content = section() + interface(if_name) + enhanced(0, 5, FOUR.ip_bytes())
    (row,) = read_packets(tmp_path / file_name, content)
    assert row["host"] == host
    tables = dict(read_tables(tmp_path / file_name, Reading(("conns", "wire", "captures"))))
    assert {host} == {each for table in tables.values() for each in table["vantage_host"].to_pylist()}


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


@pytest.mark.parametrize("content", [b"", b"\x0a\x0d", b"\x0a\x0d\x0d\x0a", pcap([])[:3], pcap([])[:10], pcap([])])
def test_empty_files(tmp_path: Path, content: bytes) -> None:
    assert read_packets(tmp_path / "x.pcap", content) == []
    for name, table in read_tables(tmp_path / "x.pcap", Reading(("conns", "frames", "wire"))):
        assert len(table) == 0, name


@pytest.mark.parametrize(
    "content", [b"no capture at all", b"n", gzip.compress(b"no", mtime=0), section().replace(b"+", b"-")]
)
def test_foreign_files_are_refused_or_counted(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=r"x\.pcap: not a capture: expected a pcap or pcapng file, found"):
        list(read_tables(path, Reading(("packets",))))
    tables = dict(read_tables(path, Reading(("captures",), foreign=True)))
    (row,) = tables["captures"].to_pylist()
    assert row["truncated"] and row["unread_bytes"] and not row["packets"]


@pytest.mark.parametrize(
    "compress", [gzip.compress, lambda content: gzip.compress(content[:50]) + gzip.compress(content[50:])]
)
def test_compressed_captures(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    content = b"".join(pcapng([FOUR, SIX], (3,)))
    plain = read_packets(tmp_path / "x.pcapng", content)
    for name in ("x.pcapng.gz", "x.pcap"):
        packed = [row | {"pcap_file": "x.pcapng"} for row in read_packets(tmp_path / name, compress(content))]
        assert packed == plain
    assert read_packets(tmp_path / "empty.pcap.gz", gzip.compress(b"")) == []


@pytest.mark.parametrize("cut", [5, 12, 200])
def test_a_damaged_compressed_capture_is_read_up_to_the_damage(tmp_path: Path, cut: int) -> None:
    packets = many_packets(300, seed=4)
    path = tmp_path / "x.pcap.gz"
    path.write_bytes(gzip.compress(pcap(packets))[:-cut])
    found = read_packets(path, path.read_bytes())
    assert 0.9 * len(packets) < len(found) <= len(packets)
    (row,) = dict(read_tables(path, Reading(("captures",))))["captures"].to_pylist()
    assert row["truncated"], "even if all packets are there"


def test_what_has_no_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pcap")
    (tmp_path / "zero.pcap").symlink_to("/dev/zero")
    (tmp_path / "folder.pcap").mkdir()
    for name, kind in (("pipe", "named pipe"), ("zero", "device"), ("folder", "folder")):
        with pytest.raises(CaptureError, match=f"{name}.pcap: not a capture: expected a regular file, found a {kind}"):
            list(read_tables(tmp_path / f"{name}.pcap", Reading(("packets",), foreign=True)))


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
