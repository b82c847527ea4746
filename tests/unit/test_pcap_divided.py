"""Captures that are read some bytes at a time, and divided by connections."""

import random
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from metrics.pcap.divided import CapturePart, divide_capture
from metrics.pcap.files import Capture, read_bytes, read_windows
from metrics.pcap.headers import Packets, address_text, decode
from metrics.pcap.records import MID, HostRule, Records
from metrics.pcap.tables import Reading
from metrics.storage.copies import map_bytes
from metrics.tables import wire
from metrics.tables.buckets import of_connections
from tests.synthetic_capture import ACK, OUTBOUND, Packet, block, interface, pcap, pcapng, section

START_NS = 1_700_000_000 * 10**9
COLUMNS = ("at", "start", "cap_bytes", "wire_bytes", "ts_ns", "interface", "tap")
DECODED = ("nature", "src_port", "dst_port", "flags", "seq", "ack", "ip_bytes", "payload_bytes")


def random_packets(count: int, hosts: int) -> list[Packet]:
    """Of IPv4 and IPv6, in time order."""
    rng = random.Random(6)
    four, six = ["10.0.0.1", "10.0.0.2"], [f"fd00::{number:x}" for number in range(1, 9)]
    packets = []
    for n in range(count):
        src, dst = rng.sample(four if rng.random() < 0.5 else six, 2)
        where = START_NS + n, rng.randrange(hosts), OUTBOUND
        packets.append(Packet(*where, src, n % 7 + 1, dst, 9, n, 0, ACK, b"ab" * rng.randrange(9)))
    return packets


def between(number: int) -> tuple[str, int, str, int]:
    """From the first host to another one, or back."""
    ends = ("10.0.0.1", 7), (f"10.0.0.{2 + number % 5}", 9)
    (src, src_port), (dst, dst_port) = ends if number % 3 else ends[::-1]
    return src, src_port, dst, dst_port


def contents() -> dict[str, bytes]:
    """A file that is cut off, two of one host, one of whose address is known, one that is none, and an empty one."""
    packets = random_packets(150, 5)
    return {
        "many.pcapng": b"".join(pcapng(packets, range(5)))[:-9],
        "one-2.pcap": pcap([(packet.ts_ns, packet.ip_bytes()) for packet in packets]),
        "own-3.pcap": pcap(
            [
                (START_NS + n, Packet(START_NS + n, 0, OUTBOUND, *between(n), n, 0, ACK, b"ab").ip_bytes())
                for n in range(90)
            ]
        ),
        "text.pcap": b"no capture at all",
        "none.pcap": b"",
    }


def several_sections() -> bytes:
    """Sections of either byte order, an interface between packets, and packets without a time."""
    parts = []
    for order in "<>>":
        head, *blocks = pcapng(random_packets(20, 2), range(2), order)
        blocks.insert(7, interface("7", order))
        for place in (5, 12):
            data = random_packets(1, 1)[0].ip_bytes()
            blocks.insert(place, block(3, struct.pack(f"{order}I", len(data)) + data, order))
        parts += [head, *blocks]
    return b"".join(parts)


def joined(windows: list[Records], column: str) -> list[int]:
    return [value for each in windows for value in getattr(each, column).tolist()]


@pytest.mark.parametrize("window_bytes", [1, 64, 333, 2000, 10**6])
def test_windows_have_the_records_of_the_whole_file(tmp_path: Path, window_bytes: int) -> None:
    for name, content in (contents() | {"sections.pcapng": several_sections()}).items():
        path = tmp_path / name
        path.write_bytes(content)
        data = map_bytes(path)
        whole, windows = read_bytes(data, HostRule(name)), list(read_windows(data, HostRule(name), window_bytes))
        for column in COLUMNS:
            assert joined(windows, column) == getattr(whole, column).tolist(), (name, column)
        if windows:
            assert windows[-1].interfaces == whole.interfaces
            assert windows[-1].unread_bytes == whole.unread_bytes
            assert sum(each.unknown_blocks for each in windows) == whole.unknown_blocks
            assert max(map(len, windows)) <= max(3, window_bytes // 28)
        else:
            assert not len(whole) and whole.unread_bytes == len(data)
    assert len(whole) == 66, "all are found in all sections"


def test_a_packet_without_a_time_takes_that_of_the_window_before(tmp_path: Path) -> None:
    timed, data = pcapng(random_packets(2, 1), range(1)), random_packets(1, 1)[0].ip_bytes()
    untimed = block(3, struct.pack("<I", len(data)) + data)
    content = np.frombuffer(b"".join([*timed, untimed]), np.uint8)
    windows = list(read_windows(content, HostRule("x.pcapng"), 1))
    assert joined(windows, "ts_ns") == [START_NS, START_NS + 1, START_NS + 1]


def test_what_follows_a_bad_block_is_not_read(tmp_path: Path) -> None:
    head, *blocks = pcapng(random_packets(9, 1), range(1))
    bad = bytearray(blocks[4])
    bad[-4:] = b"\0\0\0\0"
    content = np.frombuffer(head + b"".join(blocks[:4]) + bytes(bad) + b"".join(blocks[5:]), np.uint8)
    for window_bytes in (1, 500, 10**6):
        windows = list(read_windows(content, HostRule("x.pcapng"), window_bytes))
        assert sum(map(len, windows)) == 4
        assert windows[-1].unread_bytes == sum(map(len, blocks[4:]))
    assert not list(read_windows(np.frombuffer(section()[:20], np.uint8), HostRule("x.pcapng"), 10))


def texts(packets: Packets, end: str) -> list[str]:
    """The addresses at one end."""
    addresses = getattr(packets.columns, end).tolist()
    return ["" if address < 0 else address_text(address, packets.ipv6) for address in addresses]


def parts_of(packets: Packets, parts: int) -> np.ndarray:
    """Where frames of a connection are that these packets may be of; those without addresses are with their host."""
    ends = zip(texts(packets, "src"), texts(packets, "dst"), strict=True)
    conns = pa.array([f"{src}:1-{dst}:2" if src else None for src, dst in ends], pa.string())
    return np.where(conns.is_null(), packets.host % parts, of_connections(conns, parts))


@pytest.mark.parametrize(
    ("window_bytes", "parts"), [pytest.param(100, 7, marks=pytest.mark.long), (1000, 3), (1 << 20, 1), (1 << 20, 7)]
)
def test_a_divided_capture_has_the_packets_of_each_part(tmp_path: Path, parts: int, window_bytes: int) -> None:
    for name, content in contents().items():
        path, folder = tmp_path / name, tmp_path / f"divided-{name}"
        path.write_bytes(content)
        for _ in range(2):  # an attempt that is repeated changes nothing
            divide_capture(Capture(path, path.name), folder, parts, window_bytes)
        assert not list(tmp_path.glob(".*")), "nor does it leave anything"
        whole = read_bytes(map_bytes(path), HostRule(name))
        expected_part = parts_of(decode(whole), parts)
        walked = decode(whole)
        for part in range(parts):
            mine = np.flatnonzero(expected_part == part)
            records, divided = whole.select(mine), CapturePart(folder, part)
            found = divided.packets(None)
            for column in ("ts_ns", "wire_bytes", "interface"):
                assert np.array_equal(getattr(found.records, column), getattr(records, column)), column
            for column in DECODED:
                assert np.array_equal(getattr(found.columns, column), getattr(walked.columns, column)[mine]), column
            assert np.array_equal(found.tap, walked.tap[mine]) and np.array_equal(found.host, walked.host[mine])
            for end in ("src", "dst"):
                assert texts(found, end) == [texts(walked, end)[row] for row in mine.tolist()], end
            counts = np.bincount(records.interface, minlength=len(divided.interfaces)).tolist()
            assert divided.count_packets().tolist() == counts
            for number, count in enumerate(counts):
                alone = divided.packets(np.arange(len(counts)) == number)
                assert len(alone.records) == count and set(alone.records.interface.tolist()) <= {number}
            for said in ("interfaces", "unread_bytes", "unknown_blocks"):
                assert getattr(divided, said) == getattr(records, said)


def test_directions_are_told_by_all_packets_of_an_interface(tmp_path: Path) -> None:
    """A part may have packets of a single other host, so that either address is in all of them."""
    path = tmp_path / "own-3.pcap"
    path.write_bytes(contents()[path.name])
    divide_capture(Capture(path, path.name), tmp_path / "divided", 7, 300)
    taps = [CapturePart(tmp_path / "divided", part).packets(None).tap.tolist() for part in range(7)]
    assert len([part for part in taps if part]) > 2
    assert all(MID not in part for part in taps)


def test_a_divided_capture_has_neither_payload_nor_packets(tmp_path: Path) -> None:
    for reading in ({"tables": ("frames",)}, {"tables": ("packets", "conns"), "traced": "x"}):
        with pytest.raises(ValueError, match="a divided capture has neither"):
            Reading(**reading, divided=tmp_path)


@pytest.mark.parametrize(
    ("workers", "megabytes", "parts"), [(2, 0, 1), (2, 64, 1), (2, 65, 2), (4, 65, 2), (2, 1000, 8), (2, 12_800, 100)]
)
def test_captures_are_divided_for_all_workers_and_to_bound_memory(workers: int, megabytes: int, parts: int) -> None:
    assert wire.count_parts(workers, megabytes << 20) == parts
