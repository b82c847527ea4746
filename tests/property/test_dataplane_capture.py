"""Captures: what goes in comes out of a strict reader and of scapy's, and a slow writer costs records, never time."""

import fcntl
import io
import os
import struct
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import RawPcapNgReader

from harness.planes.pcapng import INBOUND, OUTBOUND
from harness.planes.userspace.capture import GROUP_HOSTS, CaptureRecorder

HOSTS = GROUP_HOSTS + 3
OFFSET_NS = 1_700_000_000_000_000_000
SNAPLEN = 96


@dataclass
class Capture:
    """A file as a strict reader of the pcapng specification sees it."""

    interfaces: list[int] = field(default_factory=list)
    packets: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)
    statistics: dict[int, dict[int, int]] = field(default_factory=dict)


def options(data: bytes) -> dict[int, bytes]:
    found = {}
    while True:
        code, size = struct.unpack_from("<HH", data)
        if code == 0:
            assert (size, len(data)) == (0, 4)
            return found
        found[code] = data[4 : 4 + size]
        assert not any(data[4 + size : 4 + size + (-size % 4)])
        data = data[4 + size + (-size % 4) :]


def parse(content: bytes) -> Capture:
    capture = Capture()
    offset = 0
    while offset < len(content):
        kind, total = struct.unpack_from("<II", content, offset)
        assert total % 4 == 0
        assert total >= 12
        body = content[offset + 8 : offset + total - 4]
        assert struct.unpack_from("<I", content, offset + total - 4) == (total,)
        parse_block(capture, kind, body, first=offset == 0)
        offset += total
    assert offset == len(content)
    return capture


def parse_block(capture: Capture, kind: int, body: bytes, *, first: bool) -> None:
    assert (kind == 0x0A0D0D0A) == first
    if first:
        assert struct.unpack("<IHHq", body) == (0x1A2B3C4D, 1, 0, -1)
    elif kind == 1:
        found = options(body[8:])
        assert struct.unpack_from("<HHI", body) == (101, 0, SNAPLEN)
        assert found[9] == b"\x09"
        capture.interfaces.append(int(found[2].decode()))
    elif kind == 6:
        index, high, low, captured, original = struct.unpack_from("<5I", body)
        found = options(body[20 + captured + (-captured % 4) :])
        (direction,) = struct.unpack("<I", found[2])
        host = capture.interfaces[index]
        capture.packets.append((host, direction, high << 32 | low, original, body[20 : 20 + captured]))
    else:
        assert kind == 5
        (index,) = struct.unpack_from("<I", body)
        found = options(body[12:])
        counts = {code: int.from_bytes(found[code], "little") for code in (4, 5)}
        capture.statistics[capture.interfaces[index]] = counts


def drain(pipe: int) -> bytes:
    content = b""
    os.set_blocking(pipe, False)
    while True:
        try:
            chunk = os.read(pipe, 1 << 20)
        except BlockingIOError:
            return content
        if not chunk:
            return content
        content += chunk


def record(frames: list[tuple[int, int, int, bytes]]) -> list[bytes]:
    pipes = [os.pipe() for _ in range(2)]
    recorder = CaptureRecorder([write for _, write in pipes], HOSTS, SNAPLEN, OFFSET_NS, now_ns=0)
    contents = [b"", b""]
    for frame in frames:
        recorder.add(*frame)
        recorder.flush()
    recorder.finish(10**9)
    while not recorder.empty:
        recorder.flush()
        contents = [content + drain(read) for content, (read, _) in zip(contents, pipes, strict=True)]
    recorder.close()
    contents = [content + drain(read) for content, (read, _) in zip(contents, pipes, strict=True)]
    for read, _ in pipes:
        os.close(read)
    return contents


frames_strategy = st.lists(
    st.tuples(
        st.integers(0, HOSTS - 1),
        st.sampled_from([INBOUND, OUTBOUND]),
        st.integers(0, 2**50),
        st.binary(min_size=1, max_size=SNAPLEN + 30),
    ),
    max_size=30,
)


@given(frames_strategy)
def test_round_trip_through_a_strict_reader(frames: list[tuple[int, int, int, bytes]]) -> None:
    captures = [parse(content) for content in record(frames)]
    assert [capture.interfaces for capture in captures] == [list(range(GROUP_HOSTS)), [32, 33, 34]]
    for group, capture in enumerate(captures):
        expected = [
            (host, direction, stamp_ns + OFFSET_NS, len(data), data[:SNAPLEN])
            for host, direction, stamp_ns, data in frames
            if host // GROUP_HOSTS == group
        ]
        assert capture.packets == expected
        for host, counts in capture.statistics.items():
            assert counts == {4: sum(packet[0] == host for packet in capture.packets), 5: 0}


@given(frames_strategy.filter(len))
def test_round_trip_through_scapy(frames: list[tuple[int, int, int, bytes]]) -> None:
    packets = RawPcapNgReader(io.BytesIO(record(frames)[0]))
    read = [(data, meta.ifname, meta.wirelen, meta.tshigh << 32 | meta.tslow) for data, meta in packets]
    assert read == [
        (data[:SNAPLEN], str(host).encode(), len(data), stamp_ns + OFFSET_NS)
        for host, _, stamp_ns, data in frames
        if host < GROUP_HOSTS
    ]


def test_a_full_pipe_costs_records_and_counts_them() -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    recorder = CaptureRecorder([write], 2, SNAPLEN, OFFSET_NS, now_ns=0, backlog_bytes=10_000)
    for number in range(500):
        recorder.add(number % 2, OUTBOUND, number, bytes(1000))
        recorder.flush()
    recorder.finish(1000)
    assert recorder.records_written + recorder.records_dropped == 500
    assert recorder.records_dropped > 300
    content = b""
    while not recorder.empty:
        content += drain(read)
        recorder.flush()
    recorder.close()
    capture = parse(content + drain(read))
    os.close(read)
    assert len(capture.packets) == recorder.records_written
    assert sum(counts[5] for counts in capture.statistics.values()) == recorder.records_dropped
    assert all(counts[4] == 250 for counts in capture.statistics.values())


def test_a_dead_writer_stops_nobody() -> None:
    read, write = os.pipe()
    os.close(read)
    recorder = CaptureRecorder([write], 1, SNAPLEN, OFFSET_NS, now_ns=0)
    recorder.flush()
    recorder.add(0, OUTBOUND, 1, bytes(50))
    recorder.finish(2)
    assert recorder.empty
    assert (recorder.records_written, recorder.records_dropped) == (0, 1)
    recorder.close()
