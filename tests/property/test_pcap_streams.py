"""Arbitrary segments of a stream, in any order and overlapping, against the receiver that handles single bytes."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.pcap.schemas import TRACED
from metrics.pcap.tables import Reading, read_tables
from tests.examples import examples
from tests.reference_receiver import Receiver
from tests.synthetic_capture import ACK, INBOUND, OUTBOUND, SYN, Packet, pcapng

STREAM = bytes(range(48))
segments = st.lists(st.tuples(st.integers(0, 47), st.integers(1, 48), st.integers(0, 3)), max_size=14)
frames = st.sets(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=10)


def capture(isn: int, direction: int, drawn: list[tuple[int, int, int]]) -> tuple[list[Packet], Receiver]:
    """The packets as recorded, stamps repeating now and then, and what the reference makes of them."""
    addresses = ("10.0.0.1", 40000, "10.0.0.2", 7000)
    packets = [Packet(0, 0, direction, *addresses, isn, 0, SYN)]
    receiver, now = Receiver(isn), 0
    for first, length, pause in drawn:
        now += pause
        payload = STREAM[first : first + length]
        sequence = (isn + 1 + first) & 0xFFFFFFFF
        packets.append(Packet(now, 0, direction, *addresses, sequence, 0, ACK, payload))
        receiver.segment(now, sequence, payload)
    return packets, receiver


@given(
    st.sampled_from([0, 7, 2**32 - 1, 2**32 - 20, 2**31 - 5]), st.sampled_from([INBOUND, OUTBOUND]), segments, frames
)
@settings(max_examples=examples(400), deadline=None)
def test_any_segments_equal_the_reference_receiver(
    isn: int, direction: int, drawn: list[tuple[int, int, int]], wanted: set[tuple[int, int]]
) -> None:
    packets, receiver = capture(isn, direction, drawn)
    fixed = {"conn": "10.0.0.1:40000-10.0.0.2:7000", "direction": "orig", "kind": 16, "topics": [], "ts_ns": 0}
    rows = [fixed | {"off": off, "len_bytes": length, "message_id": off} for off, length in wanted]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(pa.Table.from_pylist(rows, schema=TRACED), folder / "traced.parquet")
        (folder / "a.pcapng").write_bytes(b"".join(pcapng(packets, (0,), snaplen=60)))
        reading = Reading(("frames", "conns"), traced=str(folder / "traced.parquet"))
        tables = dict(read_tables(folder / "a.pcapng", reading))
    columns = ("off", "len_bytes", "t_first_ns", "t_last_ns", "n_segments", "n_retx")
    found = set(zip(*(tables["frames"][name].to_pylist() for name in columns), strict=True))
    seen = {(off, length): receiver.sighting(off, length, direction == INBOUND) for off, length in wanted}
    assert found == {(*place, *sighting) for place, sighting in seen.items() if sighting}
    (conn,) = tables["conns"].to_pylist()
    extent = max(receiver.first_seen, default=-1) + 1
    assert [conn["orig_bytes"], conn["missed_bytes"]] == [extent, extent - len(receiver.first_seen)]
    sent_bytes = sum(len(packet.payload) for packet in packets)
    assert conn["orig_retx_bytes"] == sent_bytes - len(receiver.first_seen)
