"""Captures made up packet by packet: a lossy, reordering path between two recording hosts; pcap and pcapng writers."""

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address

from peer import wire
from peer.core.frames import Data

FIN, SYN, RST, PUSH, ACK = 1, 2, 4, 8, 16
OUTBOUND, INBOUND = 2, 1


@dataclass(frozen=True)
class Packet:
    """A TCP packet as one host recorded it."""

    ts_ns: int
    host: int
    direction: int
    src: str
    src_port: int
    dst: str
    dst_port: int
    seq: int
    ack: int
    flags: int
    payload: bytes = b""

    def ip_bytes(self, ip_options: bytes = b"", extension: bytes = b"") -> bytes:
        """The packet from its IP header on; checksums are left zero."""
        tcp = struct.pack(">HHIIBBHHH", self.src_port, self.dst_port, self.seq, self.ack, 0x80, self.flags, 65535, 0, 0)
        tcp += b"\x01\x01\x08\x0a" + bytes(8) + self.payload  # a time-stamp option, as Linux sends
        src, dst = ip_address(self.src).packed, ip_address(self.dst).packed
        if len(src) == 16:
            following = 60 if extension else 6
            return struct.pack(">IHBB", 6 << 28, len(extension) + len(tcp), following, 64) + src + dst + extension + tcp
        first = 0x45 + len(ip_options) // 4
        length = 20 + len(ip_options) + len(tcp)
        return struct.pack(">BBHHHBBH", first, 0, length, 1, 0x4000, 64, 6, 0) + src + dst + ip_options + tcp


class Datagram(Packet):
    """A UDP packet as one host recorded it; what only TCP has is not in it."""

    def ip_bytes(self, ip_options: bytes = b"", extension: bytes = b"") -> bytes:
        """The packet from its IP header on; checksums are left zero."""
        udp = struct.pack(">HHHH", self.src_port, self.dst_port, 8 + len(self.payload), 0) + self.payload
        ends = ip_address(self.src).packed + ip_address(self.dst).packed
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0x4000, 64, 17, 0) + ends + udp


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A pcapng block."""
    body += bytes(-len(body) % 4)
    return struct.pack(f"{order}II", kind, 12 + len(body)) + body + struct.pack(f"{order}I", 12 + len(body))


def option(code: int, value: bytes, order: str = "<") -> bytes:
    """A pcapng option."""
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order: str = "<") -> bytes:
    """A section header."""
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(name: str, order: str = "<", linktype: int = 101, snaplen: int = 96, options: bytes = b"") -> bytes:
    """An interface description, with nanoseconds unless ``options`` say otherwise."""
    options = options or option(9, b"\x09", order)
    body = struct.pack(f"{order}HHI", linktype, 0, snaplen) + option(2, name.encode(), order) + options
    return block(1, body + option(0, b"", order), order)


def enhanced(
    number: int,
    ticks: int,
    data: bytes,
    order: str = "<",
    direction: int = 0,
    snaplen: int = 1 << 18,
    before: bytes = b"",
) -> bytes:
    """An enhanced packet block; ``before`` are options that precede its flags."""
    kept = data[:snaplen]
    body = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(kept), len(data)) + kept
    body += bytes(-len(body) % 4)
    if direction:
        body += before + option(2, struct.pack(f"{order}I", direction), order) + option(0, b"", order)
    return block(6, body, order)


def old_packet(number: int, ticks: int, data: bytes, order: str = "<", direction: int = 0, drops: int = 0) -> bytes:
    """A packet block of the obsolete type."""
    body = struct.pack(f"{order}HHIIII", number, drops, ticks >> 32, ticks & 0xFFFFFFFF, len(data), len(data)) + data
    body += bytes(-len(body) % 4)
    if direction:
        body += option(2, struct.pack(f"{order}I", direction), order) + option(0, b"", order)
    return block(2, body, order)


LINK_HEADERS = [
    (1, bytes(12) + b"\x08\x00"),
    (1, bytes(12) + b"\x81\x00\x00\x05\x08\x00"),
    (1, bytes(12) + b"\x88\xa8\x00\x05\x81\x00\x00\x06\x08\x00"),
    (1, bytes(12) + b"\x88\x47\x00\x01\x00\x40\x00\x02\x01\x40"),
    (1, bytes(12) + b"\x81\x00\x00\x05\x88\x64\x11\x00\x00\x01\x00\x40\x00\x21"),
    (12, b""),
    (14, b""),
    (101, b""),
    (228, b""),
    (0, b"\x02\x00\x00\x00"),
    (0, b"\x00\x00\x00\x02"),
    (108, b"\x00\x00\x00\x02"),
    (113, b"\x00\x04" + bytes(12) + b"\x08\x00"),
    (113, b"\x00\x04" + bytes(12) + b"\x81\x00\x00\x05\x08\x00"),
    (276, b"\x08\x00" + bytes(8) + b"\x04" + bytes(9)),
]
"""Link types, and what stands before an IPv4 packet. In cooked captures, the packet left the host."""


def pcapng(packets: Iterable[Packet], hosts: Iterable[int], order: str = "<", snaplen: int = 1 << 18) -> list[bytes]:
    """A capture with an interface a host: its header blocks, then a block a packet."""
    numbers = {host: number for number, host in enumerate(hosts)}
    header = section(order) + b"".join(interface(str(host), order, snaplen=snaplen) for host in numbers)
    return [header] + [
        enhanced(numbers[each.host], each.ts_ns, each.ip_bytes(), order, each.direction, snaplen) for each in packets
    ]


def pcap(
    packets: Iterable[tuple[int, bytes]], order: str = "<", nano: bool = True, linktype: int = 101, magic: int = 0
) -> bytes:
    """A classic pcap file of (ts_ns, packet from its link header on)."""
    own_magic, unit = (0xA1B23C4D, 1) if nano else (0xA1B2C3D4, 1000)
    magic = magic or own_magic
    out = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 1 << 18, linktype)
    for ts_ns, data in packets:
        out += struct.pack(f"{order}IIII", ts_ns // 10**9, ts_ns % 10**9 // unit, len(data), len(data)) + data
    return out


@dataclass(frozen=True)
class Path:
    """How rough a path is, as probabilities a segment."""

    loss: float = 0.1
    overlap: float = 0.1
    reorder: float = 0.2
    abandon: float = 0.0  # a segment that no retransmission ever brings


def random_frames(rng: random.Random, count: int, publisher: int) -> list[tuple[int, Data, bytes]]:
    """(stream offset, frame, bytes) of ``count`` data frames one behind the other."""
    frames, off = [], 0
    for sequence in range(count):
        topics = tuple(rng.randrange(1000) for _ in range(rng.randrange(4)))
        frame = Data(publisher << 32 | sequence, topics, 1, 255, rng.randbytes(rng.choice([0, 1, 10, 200, 3000])))
        data = wire.encode(frame)
        frames.append((off, frame, data))
        off += len(data)
    return frames


def transmit(rng: random.Random, stream: bytes, isn: int, head: Packet, path: Path) -> list[Packet]:
    """What both hosts record while ``stream`` crosses a rough path: every sending at the source, arrivals at the other.

    ``head`` gives addresses, the source host, and the start time; the destination host is 1 - source.
    """
    sendings: list[tuple[int, int, int]] = []  # time, from, to
    now, at = head.ts_ns, 0
    while at < len(stream):
        size = rng.choice([1, 7, 100, 536, 1448])
        end = min(at + size, len(stream))
        now += rng.randrange(1, 300_000_000)
        sendings.append((now, at, end))
        if rng.random() < path.overlap:
            again = max(0, at - rng.randrange(2000))
            sendings.append((now + rng.randrange(1, 10**9), again, min(len(stream), again + rng.randrange(1, 1448))))
        at = end
    recorded: list[Packet] = []
    for sent_ns, first, last in sendings:
        packet = replace(
            head, ts_ns=sent_ns, seq=(isn + 1 + first) & 0xFFFFFFFF, flags=ACK | PUSH, payload=stream[first:last]
        )
        recorded.append(packet)
        arrived_ns = sent_ns + (rng.randrange(10**9) if rng.random() < path.reorder else 10_000_000)
        if rng.random() < path.loss:
            if rng.random() < path.abandon:
                continue
            again_ns = sent_ns + rng.randrange(10**8, 2 * 10**9)
            recorded.append(replace(packet, ts_ns=again_ns))
            arrived_ns = again_ns + 10_000_000
        recorded.append(replace(packet, ts_ns=arrived_ns, host=1 - head.host, direction=INBOUND))
    return sorted(recorded, key=lambda each: each.ts_ns)
