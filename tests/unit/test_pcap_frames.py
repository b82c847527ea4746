"""Frames and their times, from payload and from traced offsets, against a receiver that handles a byte at a time."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metrics.pcap.divided import divide_capture
from metrics.pcap.files import Capture
from metrics.pcap.schemas import TRACED
from metrics.pcap.tables import Reading, read_tables
from peer import wire
from peer.core.frames import Data
from tests.examples import long_unless
from tests.reference_receiver import Receiver
from tests.synthetic_capture import ACK, INBOUND, OUTBOUND, SYN, Packet, pcapng, random_frames, transmit
from tests.synthetic_capture import Path as NetworkPath

START_NS = 1_700_000_000 * 10**9
CONN = "10.0.0.1:40000-10.0.0.2:7000"
Frames = list[tuple[int, Data, bytes]]
Sighting = tuple[int, int, str, str, int, int, int, int, int]


def handshake(isn_orig: int, isn_resp: int) -> list[Packet]:
    orig, resp = ("10.0.0.1", 40000), ("10.0.0.2", 7000)
    sendings = [
        (0, orig, resp, isn_orig, 0, SYN),
        (1, resp, orig, isn_resp, isn_orig + 1, SYN | ACK),
        (0, orig, resp, isn_orig + 1, isn_resp + 1, ACK),
    ]
    packets = []
    for number, (host, src, dst, seq, ack, flags) in enumerate(sendings):
        at = START_NS + number * 20_000_000
        packet = Packet(at, host, OUTBOUND, *src, *dst, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, flags)
        arrival = Packet(at + 10_000_000, 1 - host, INBOUND, *src, *dst, packet.seq, packet.ack, flags)
        packets += [packet, arrival]
    return packets


def exchange(seed: int, path: NetworkPath) -> tuple[list[Packet], dict[str, Frames], dict[str, int]]:
    """Both directions of a connection: packets in time order, frames and initial sequence numbers by direction."""
    rng = random.Random(seed)
    isns = {"orig": rng.choice([0, 2**32 - 1, 2**32 - 500, rng.randrange(2**32)]), "resp": rng.randrange(2**32)}
    frames = {"orig": random_frames(rng, 12, publisher=1), "resp": random_frames(rng, 8, publisher=2)}
    packets = handshake(isns["orig"], isns["resp"])
    heads = {
        "orig": Packet(START_NS + 10**8, 0, OUTBOUND, "10.0.0.1", 40000, "10.0.0.2", 7000, 0, 0, ACK),
        "resp": Packet(START_NS + 10**8, 1, OUTBOUND, "10.0.0.2", 7000, "10.0.0.1", 40000, 0, 0, ACK),
    }
    for direction, head in heads.items():
        stream = b"".join(data for _, _, data in frames[direction])
        packets += transmit(rng, stream, isns[direction], head, path)
    if seed % 4 == 3:  # the recorder itself misses packets, at either host
        packets = [each for each in packets if not each.payload or rng.random() < 0.95]
    return sorted(packets, key=lambda each: each.ts_ns), frames, isns


def receivers(packets: list[Packet], isns: dict[str, int]) -> dict[tuple[int, str], Receiver]:
    """The reference's view of each direction at each host."""
    found: dict[tuple[int, str], Receiver] = {}
    for packet in packets:
        direction = "orig" if packet.src_port == 40000 else "resp"
        receiver = found.setdefault((packet.host, direction), Receiver(isns[direction]))
        if packet.payload:
            receiver.segment(packet.ts_ns, packet.seq, packet.payload)
    return found


def expected(packets: list[Packet], frames: dict[str, Frames], isns: dict[str, int], in_payload: bool) -> set[Sighting]:
    rows: set[Sighting] = set()
    for (host, direction), receiver in receivers(packets, isns).items():
        tap = "tx" if (host == 0) == (direction == "orig") else "rx"
        decoder = wire.Decoder()
        decodable = {off for off, _, _ in decoder.feed(receiver.readable())}
        for off, frame, data in frames[direction]:
            seen = receiver.sighting(off, len(data), in_order=tap == "rx")
            if seen and (off in decodable or not in_payload):
                rows.add((host, frame.message_id, tap, direction, off, *seen))
    return rows


def measured(path: Path, **options: Any) -> set[Sighting]:
    names = ("vantage_host", "message_id", "tap", "direction", "off", "t_first_ns", "t_last_ns", "n_segments", "n_retx")
    rows: set[Sighting] = set()
    for _, table in read_tables(path, Reading(("frames",), **options)):
        assert set(table["conn"].to_pylist()) <= {CONN}
        columns = [table[name].to_pylist() for name in names]
        fresh = list(zip(*columns, strict=True))
        assert not rows & set(fresh) and len(set(fresh)) == len(fresh)
        rows |= set(fresh)
    return rows


def write_traced(path: Path, frames: dict[str, Frames]) -> str:
    rows = [
        {
            "conn": CONN, "direction": direction, "off": off, "len_bytes": len(data), "kind": Data.kind,
            "topics": list(frame.topics), "message_id": frame.message_id, "ts_ns": START_NS + 1,
        }
        for direction, some in frames.items()
        for off, frame, data in some
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, schema=TRACED), path)
    return str(path)


@pytest.mark.parametrize("seed", long_unless(range(10), range(40)))
def test_frames_from_payload_equal_the_reference_receiver(tmp_path: Path, seed: int) -> None:
    path = NetworkPath(loss=0.15, overlap=0.2, reorder=0.3, abandon=0.1 if seed % 2 else 0.0)
    packets, frames, isns = exchange(seed, path)
    file = tmp_path / "all.pcapng"
    file.write_bytes(b"".join(pcapng(packets, (0, 1), order="<>"[seed % 2])))
    wanted = expected(packets, frames, isns, in_payload=True)
    assert wanted
    assert measured(file) == wanted


@pytest.mark.parametrize("seed", long_unless(range(10), range(40)))
def test_frames_from_traced_offsets_in_header_only_captures_equal_the_reference_receiver(
    tmp_path: Path, seed: int
) -> None:
    path = NetworkPath(loss=0.15, overlap=0.2, reorder=0.3, abandon=0.1 if seed % 2 else 0.0)
    packets, frames, isns = exchange(seed, path)
    file = tmp_path / "all.pcapng"
    file.write_bytes(b"".join(pcapng(packets, (0, 1), snaplen=60)))
    traced = write_traced(tmp_path / "traced.parquet", frames)
    wanted = expected(packets, frames, isns, in_payload=False)
    assert wanted
    assert measured(file, traced=traced) == wanted


@pytest.mark.parametrize("seed", range(8))
def test_parts_of_a_divided_capture_have_its_frames(tmp_path: Path, seed: int) -> None:
    """Nobody who reads a part needs the capture, nor frames of other parts."""
    packets, frames, isns = exchange(seed, NetworkPath(loss=0.15, overlap=0.2, reorder=0.3))
    file, folder = tmp_path / "all.pcapng", tmp_path / "divided"
    file.write_bytes(b"".join(pcapng(packets, (0, 1), snaplen=60)))
    divide_capture(Capture(file, file.name), folder, 2, 700)
    file.unlink()
    found: set[Sighting] = set()
    for part in range(2):
        traced = tmp_path / f"traced-{part}"
        traced.mkdir()
        write_traced(traced / f"part-0-{part}.parquet", frames)
        found |= measured(file, traced=str(traced), divided=folder, part=part, parts=2)
    assert found == expected(packets, frames, isns, in_payload=False) != set()


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_tail_costs_only_what_was_in_it(tmp_path: Path, seed: int) -> None:
    packets, frames, isns = exchange(seed, NetworkPath())
    blocks = pcapng(packets, (0, 1))
    whole = b"".join(blocks)
    cut = random.Random(seed).randrange(len(blocks[0]), len(whole))
    file = tmp_path / "cut.pcapng"
    file.write_bytes(whole[:cut])
    left, size = 0, len(blocks[0])
    while left < len(packets) and size + len(blocks[left + 1]) <= cut:
        size += len(blocks[left + 1])
        left += 1
    assert measured(file) == expected(packets[:left], frames, isns, in_payload=True)
    captures = dict(read_tables(file, Reading(("captures",))))["captures"]
    assert set(captures["unread_bytes"].to_pylist()) == {cut - size}


def test_a_reused_port_is_a_new_connection(tmp_path: Path) -> None:
    pause_ns = 100 * 10**9
    first, frames, isns = exchange(1, NetworkPath())
    second, later_frames, later_isns = exchange(2, NetworkPath())
    second = [replace(each, ts_ns=each.ts_ns + pause_ns) for each in second]
    file = tmp_path / "all.pcapng"
    file.write_bytes(b"".join(pcapng([*first, *second], (0, 1), snaplen=60)))
    early = pq.read_table(write_traced(tmp_path / "early.parquet", frames))
    late = pq.read_table(write_traced(tmp_path / "late.parquet", later_frames))
    late = late.set_column(
        late.column_names.index("ts_ns"), "ts_ns", pa.array([START_NS + pause_ns + 10**8] * len(late))
    )
    pq.write_table(pa.concat_tables([late, early]), tmp_path / "traced.parquet")
    wanted = expected(first, frames, isns, in_payload=False)
    wanted |= expected(second, later_frames, later_isns, in_payload=False)
    assert measured(file, traced=str(tmp_path / "traced.parquet")) == wanted
    conns = dict(read_tables(file, Reading(("conns",))))["conns"]
    assert [len(conns), len(set(conns["uid"].to_pylist()))] == [4, 2]
