"""``trellis inspect`` on captures made by Scapy: whole, cut, with holes, and no captures at all."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, Raw
from scapy.utils import PcapNgWriter, PcapWriter

from harness.cli import main
from peer.core.frames import Bye, Data, Frame, Hello, Subscriptions
from peer.wire import encode
from tests import synthetic_capture as synthetic

FRAMES: list[Frame] = [Hello(3, 7), Subscriptions((1, 2)), Data(3 << 32 | 9, (4, 5), 2, 1, bytes(300)), Bye("stop")]
RAW_IP = 101
ROOT = Path(__file__).parents[2]


def segments(frames: list[Frame], sizes: list[int], isn: int = 100) -> list[Packet]:
    """The frames' bytes as TCP segments of these sizes, the last one taking the rest; an ACK after each."""
    content, packets, seq = b"".join(map(encode, frames)), [], isn
    for size in [*sizes, len(content)]:
        head = IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=40_000, dport=9000, seq=seq, flags="PA")
        packets += [
            head / Raw(content[:size]),
            IP(src="10.0.0.2", dst="10.0.0.1") / TCP(sport=9000, dport=40_000, flags="A"),
        ]
        content, seq = content[size:], seq + size
    return packets


def write(path: Path, packets: list[Packet], snaplen: int = 65_535) -> Path:
    with PcapWriter(str(path), linktype=RAW_IP) as out:
        out.write_header(None)
        for number, packet in enumerate(packets):
            content = bytes(packet)
            out.write_packet(content[:snaplen], sec=50, usec=number, wirelen=len(content))
    return path


def inspect(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str], str]:
    status = main(["inspect", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err


WHOLE = [
    "hello length=23 3 7",
    "subscriptions length=24 [1, 2]",
    "data id=3/9 topics=4,5 hops=2 ttl=1 length=332 <300 bytes>",
    "bye length=26 'stop'",
]


@pytest.mark.parametrize("sizes", [[], [23, 24], [10, 10, 10, 10], [60, 200], [1] * 100])
def test_every_frame_of_a_whole_capture_is_a_line(capsys, tmp_path: Path, sizes: list[int]):
    path = write(tmp_path / "x.pcap", segments(FRAMES, sizes))
    status, lines, err = inspect(capsys, path)
    assert status == 0
    assert [line.partition("10.0.0.1:40000 > 10.0.0.2:9000 ")[2] for line in lines] == WHOLE
    assert err == "4 frames: 1 bye, 1 data, 1 hello, 1 subscriptions\n"


def test_of_a_cut_capture_the_visible_headers_are_shown_and_the_rest_counted(capsys, tmp_path: Path):
    path = write(tmp_path / "x.pcap", segments(FRAMES, [47, 332]), snaplen=96)
    _, lines, err = inspect(capsys, path)
    assert [line.split("9000 ")[1] for line in lines] == [
        *WHOLE[:2],
        "data id=3/9 topics=4,5 hops=2 ttl=1 length=332 (cut)",
        WHOLE[3],
    ]
    assert "the capture cut the payload" in err
    assert "1 cut" in err
    path = write(tmp_path / "y.pcap", segments(FRAMES, []), snaplen=96)
    _, lines, err = inspect(capsys, path)
    assert len(lines) == 2
    assert "1 hidden" in err


def test_what_is_no_overlay_traffic_and_what_is_missing_is_counted(capsys, tmp_path: Path):
    packets = segments(FRAMES, [23, 24, 332])
    del packets[2]
    packets += [packets[0], IP(src="10.0.0.1", dst="10.0.0.2") / UDP(dport=9000), IP() / TCP(dport=80) / Raw(b"GET /")]
    packets += [
        IP(src="10.0.0.9", dst="10.0.0.2") / TCP(sport=1, dport=9000, seq=1) / Raw(b"GET / HTTP/1.1\r\n\r\n\r\n")
    ]
    _, lines, err = inspect(capsys, write(tmp_path / "x.pcap", packets))
    assert len(lines) == 3
    assert "not shown as frames: 1 holes, 1 not_frames, 2 other_packets, 1 retransmitted\n" in err


def test_pcapng_is_read_and_a_frame_is_shown_where_it_left_its_sender(capsys, tmp_path: Path):
    path = tmp_path / "x.pcapng"
    with PcapNgWriter(str(path)) as out:
        for number, packet in enumerate(segments(FRAMES, [])):
            for direction, host in ((2, "0"), (1, "1")):
                packet.time, packet.direction, packet.sniffed_on = 50 + number, direction, host
                out.write(packet)
    for option, taps in (("tx", ["tx"] * 4), ("rx", ["rx"] * 4), ("both", ["tx"] * 4 + ["rx"] * 4)):
        _, lines, _ = inspect(capsys, path, "--tap", option)
        assert [line.split()[1] for line in lines] == taps


def test_what_is_seen_at_the_other_tap_is_counted(capsys, tmp_path: Path):
    """Cooked packets between other hosts are shown: no tap is theirs."""
    content = encode(Hello(3, 7))
    packets = []
    for kind in range(5):
        tcp = IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=kind, dport=9000, flags="PA") / Raw(content)
        packets.append((kind, bytes([0, kind]) + bytes(12) + b"\x08\x00" + bytes(tcp)))
    path = tmp_path / "x.pcap"
    path.write_bytes(synthetic.pcap(packets, linktype=113))
    for tap, sources, others in (("tx", [3, 4], 3), ("rx", [0, 1, 2, 3], 1), ("both", [0, 1, 2, 3, 4], 0)):
        _, lines, err = inspect(capsys, path, "--tap", tap)
        assert [int(line.partition(" > ")[0].rpartition(":")[2]) for line in lines] == sources
        assert err.endswith(f"{others} at_other_tap\n" if others else "5 hello\n")


def test_a_packet_whose_length_is_left_to_the_card_is_read(capsys, tmp_path: Path):
    packets = segments(FRAMES, [23, 24])
    for packet in packets:
        packet.len = 0
    _, lines, err = inspect(capsys, write(tmp_path / "x.pcap", packets))
    assert [line.partition("10.0.0.1:40000 > 10.0.0.2:9000 ")[2] for line in lines] == WHOLE
    assert err == "4 frames: 1 bye, 1 data, 1 hello, 1 subscriptions\n"


@pytest.mark.parametrize(("linktype", "head"), synthetic.LINK_HEADERS)
def test_every_link_layer_of_the_tables_is_read(capsys, tmp_path: Path, linktype: int, head: bytes):
    content = [(number, head + bytes(packet)) for number, packet in enumerate(segments(FRAMES, [23, 24]))]
    path = tmp_path / "x.pcap"
    path.write_bytes(gzip.compress(synthetic.pcap(content, linktype=linktype)))
    _, lines, _ = inspect(capsys, path)
    assert [line.partition(" > 10.0.0.2:9000 ")[2] for line in lines] == WHOLE


def test_ipv6_and_old_packet_blocks_are_read(capsys, tmp_path: Path):
    path = tmp_path / "x.pcapng"
    head = IPv6(src="fd00::1", dst="fd00::2") / TCP(sport=40_000, dport=9000, flags="PA")
    packet = bytes(head / Raw(b"".join(map(encode, FRAMES))))
    path.write_bytes(synthetic.section() + synthetic.interface("0") + synthetic.old_packet(0, 5, packet))
    _, lines, _ = inspect(capsys, path)
    assert [line.partition("[fd00::1]:40000 > [fd00::2]:9000 ")[2] for line in lines] == WHOLE


def test_a_cut_file_says_how_much_was_not_read(capsys, tmp_path: Path):
    path = write(tmp_path / "x.pcap", segments(FRAMES, [23, 24]))
    path.write_bytes(path.read_bytes()[:-7])
    _, lines, err = inspect(capsys, path)
    assert len(lines) == 4
    assert "49 unread_bytes" in err  # the last ACK's record without the 7 bytes


def test_what_has_no_end_is_refused(capsys, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.pcap")
    for path, kind in ((tmp_path / "pipe.pcap", "a named pipe"), ("/dev/zero", "a device"), (tmp_path, "a folder")):
        status, lines, err = inspect(capsys, path)
        assert (status, lines) == (2, [])
        assert err == f"trellis inspect: {path}: not a capture: expected a regular file, found {kind}\n"


def test_the_port_and_the_number_of_lines_may_be_chosen(capsys, tmp_path: Path):
    path = write(tmp_path / "x.pcap", segments(FRAMES, []))
    assert len(inspect(capsys, path, "--limit", 2)[1]) == 2
    assert inspect(capsys, path, "--port", 9001)[1] == []


@pytest.mark.parametrize("content", [b"", b"no capture at all", b"\xd4\xc3\xb2\xa1", b"\x0a\x0d\x0d\x0a1234"])
def test_what_is_no_capture_is_a_usage_error_that_names_the_file(capsys, tmp_path: Path, content: bytes):
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    status, lines, err = inspect(capsys, path)
    assert (status, lines) == (2, [])
    assert "x.pcap: not a capture" in err
    assert len(err.splitlines()) == 1
    assert inspect(capsys, tmp_path / "missing.pcap")[0] == 2


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path):
    """As in ``trellis inspect CAPTURE | head``."""
    path = write(tmp_path / "many.pcap", segments(FRAMES * 400, [1400] * 115))
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.cli", "inspect", str(path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 0
