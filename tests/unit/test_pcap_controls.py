"""Frames with their bytes, found by captured headers alone, against a receiver that handles a byte at a time."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metrics.pcap.divided import divide_capture
from metrics.pcap.files import Capture
from metrics.pcap.tables import Reading, read_tables
from peer import wire
from peer.core.frames import Bye, Data, Frame, Hello, Subscriptions
from tests.examples import long_unless
from tests.synthetic_capture import ACK, INBOUND, OUTBOUND, Packet, pcapng
from tests.synthetic_capture import Path as NetworkPath
from tests.unit.test_pcap_frames import START_NS, exchange, expected, handshake

Row = dict[str, Any]
KINDS = (Hello.kind, Bye.kind, Subscriptions.kind)
SNAPLEN = 96


def rows_of(path: Path, kinds: tuple[int, ...] = KINDS, **options: Any) -> list[Row]:
    tables = read_tables(Capture(path, path.name), Reading(("controls",), kinds=kinds, **options))
    return [row for _, table in tables for row in table.to_pylist()]


def capture(folder: Path, packets: list[Packet], snaplen: int = 1 << 18) -> Path:
    path = folder / "all.pcapng"
    path.write_bytes(b"".join(pcapng(packets, (0, 1), snaplen=snaplen)))
    return path


def sent(*segments: list[Frame]) -> list[Packet]:
    """What the opener's host records of segments of whole frames, one per second."""
    packets, seq = handshake(99, 5), 100
    for second, frames in enumerate(segments, 1):
        payload = b"".join(map(wire.encode, frames))
        ends = ("10.0.0.1", 40000, "10.0.0.2", 7000)
        packets.append(Packet(START_NS + second * 10**9, 0, OUTBOUND, *ends, seq, 6, ACK, payload))
        seq += len(payload)
    return packets


def message(payload_bytes: int) -> Data:
    return Data(7, (1,), 1, 1, bytes(payload_bytes))


@pytest.mark.parametrize("seed", long_unless({1, 5, 14}, [seed for seed in range(30) if seed % 4 != 3]))
def test_frames_have_their_bytes_and_the_times_of_the_reference_receiver(tmp_path: Path, seed: int) -> None:
    path = NetworkPath(loss=0.15, overlap=0.2, reorder=0.3, abandon=0.1 if seed % 2 else 0.0)
    packets, frames, isns = exchange(seed, path)
    contents = {(direction, off): data for direction, some in frames.items() for off, _, data in some}
    found = [row for row in rows_of(capture(tmp_path, packets), (Data.kind,)) if row["frame"] is not None]
    wanted = {(host, tap, direction, off, last) for host, _, tap, direction, off, _, last, *_ in
              expected(packets, frames, isns, in_payload=True)}  # fmt: skip
    names = ("vantage_host", "tap", "direction", "off", "at_ns")
    assert {tuple(row[name] for name in names) for row in found} >= wanted != set()
    assert all(row["frame"] == contents[row["direction"], row["off"]] for row in found)
    arrived = [row for row in found if row["tap"] == "rx"]
    assert {tuple(row[name] for name in names) for row in arrived} == {each for each in wanted if each[1] == "rx"}


@pytest.mark.parametrize("snaplen", [SNAPLEN, 1 << 18])
def test_a_part_of_a_divided_capture_has_the_frames_of_its_connections(tmp_path: Path, snaplen: int) -> None:
    path = capture(
        tmp_path, sent([Hello(1, 9)], [message(300)], [Subscriptions((1, 2)), message(5)], [Bye("x")]), snaplen
    )
    whole = rows_of(path)
    divide_capture(Capture(path, path.name), tmp_path / "divided", 3, 200)
    parts = [
        row
        for part in range(3)
        for row in rows_of(path, traced="unused", divided=tmp_path / "divided", part=part, parts=3)
    ]
    assert parts == whole
    assert [row["kind"] for row in whole] == [Hello.kind, Subscriptions.kind, Bye.kind]


def test_a_short_frame_is_whole_in_a_cut_capture_and_a_long_one_is_known_by_its_header(tmp_path: Path) -> None:
    long = Subscriptions(tuple(range(200)))
    packets = sent([Hello(1, 9)], [long], [message(900)], [Subscriptions((3,))])
    rows = rows_of(capture(tmp_path, packets, SNAPLEN))
    assert [(row["kind"], row["frame"]) for row in rows] == [
        (Hello.kind, wire.encode(Hello(1, 9))),
        (Subscriptions.kind, None),
        (Subscriptions.kind, wire.encode(Subscriptions((3,)))),
    ]
    assert [row["at_ns"] - START_NS for row in rows] == [10**9, 2 * 10**9, 4 * 10**9]


def test_where_a_header_was_cut_nothing_more_is_known_of_the_stream(tmp_path: Path) -> None:
    packets = sent([Hello(1, 9)], [message(100), message(100)], [Subscriptions((3,))])
    *known, last = rows_of(capture(tmp_path, packets, SNAPLEN))
    assert [row["kind"] for row in known] == [Hello.kind]
    assert (last["kind"], last["at_ns"], last["frame"]) == (None, None, None)
    assert last["off"] == len(wire.encode(Hello(1, 9))) + len(wire.encode(message(100)))


def test_a_receiver_reads_nothing_behind_a_hole_and_its_sender_s_stream_goes_on(tmp_path: Path) -> None:
    """The middle third of a frame never arrives."""
    whole = sent([Hello(1, 9)], [Subscriptions(tuple(range(90)))], [Bye("x")])
    *begun, long, last = whole
    thirds = [(0, 30), (30, 60), (60, len(long.payload))]
    pieces = [replace(long, seq=long.seq + first, payload=long.payload[first:end]) for first, end in thirds]
    left = [*begun, *pieces, last]
    arrived = [each for each in left if each.payload and each is not pieces[1]]
    arrived = [replace(each, ts_ns=each.ts_ns + 10**7, host=1, direction=INBOUND) for each in arrived]
    rows = rows_of(capture(tmp_path, sorted([*left, *arrived], key=lambda each: each.ts_ns)))
    kinds = {tap: [row["kind"] for row in rows if row["tap"] == tap] for tap in ("tx", "rx")}
    assert kinds == {"tx": [Hello.kind, Subscriptions.kind, Bye.kind], "rx": [Hello.kind, None]}
    assert [row["off"] for row in rows if row["kind"] is None] == [len(wire.encode(Hello(1, 9)))]


def test_a_stream_whose_beginning_was_not_captured_is_not_read(tmp_path: Path) -> None:
    packets = [packet for packet in sent([Hello(1, 9)], [Bye("x")]) if packet.payload]
    assert [(row["kind"], row["off"]) for row in rows_of(capture(tmp_path, packets))] == [(None, 0)]


def test_what_is_no_frame_ends_a_stream_as_it_does_for_a_peer(tmp_path: Path) -> None:
    packets = sent([Hello(1, 9)], [Bye("x")])
    packets[-1] = replace(packets[-1], payload=b"GET / HTTP/1.1\r\nHost: example\r\n\r\n")
    assert [row["kind"] for row in rows_of(capture(tmp_path, packets))] == [Hello.kind]


def test_a_frame_that_was_not_finished_has_no_row(tmp_path: Path) -> None:
    packets = sent([Hello(1, 9)], [Subscriptions((1, 2, 3))])
    packets[-1] = replace(packets[-1], payload=packets[-1].payload[:-1])
    assert [row["kind"] for row in rows_of(capture(tmp_path, packets))] == [Hello.kind]


def test_the_kinds_must_be_given() -> None:
    with pytest.raises(ValueError, match="controls needs kinds"):
        Reading(("controls",))
