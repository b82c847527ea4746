"""The overlay frames that a capture with whole packets shows, decoded."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scapy.layers.inet import IP, TCP
from scapy.utils import PcapReader

import peer.protocols.registry  # noqa: F401 - every protocol registers its frames with the codec
from harness.inspection.frame_walk import FrameWalk
from peer.core.frames import Frame
from peer.wire import Decoder

INBOUND = 1


def received_frames(capture: Path, trouble: Counter[str]) -> Iterator[tuple[str, Frame]]:
    """(receiver's IP address, frame) of every frame, by the packets that the network handed to receivers.

    A later connection may have the same addresses and ports, and has another first sequence number.
    """
    walks: dict[tuple[str, int, str, int, int | None], FrameWalk] = {}
    first: dict[tuple[str, int, str, int], int] = {}
    with PcapReader(str(capture)) as packets:
        for packet in packets:
            if packet.direction != INBOUND or TCP not in packet:
                continue
            ip, tcp = packet[IP], packet[TCP]
            ends = ip.src, tcp.sport, ip.dst, tcp.dport
            if tcp.flags.S:
                first[ends] = tcp.seq
            header = tcp.dataofs * 4
            length = ip.len - ip.ihl * 4 - header
            if length == 0:
                continue
            walk = walks.setdefault((*ends, first.get(ends)), FrameWalk(trouble))
            for content, size in walk.segment(tcp.seq, tcp.original[header : header + length], length):
                if len(content) < size:
                    trouble["cut"] += 1
                yield from ((ip.dst, frame) for _, _, frame in Decoder().feed(content))
