"""UDP flows, and TCP connections that both sides open at once, on exchanges small enough to be counted by hand."""

from pathlib import Path
from typing import Any

import pytest

from metrics.pcap.datagrams import IDLE_NS
from metrics.pcap.tables import Reading, read_tables
from tests.synthetic_capture import ACK, FIN, INBOUND, OUTBOUND, RST, SYN, Datagram, Packet, pcapng

START_NS = 1_700_000_000 * 10**9
A, B = ("10.0.0.1", 9000), ("10.0.0.2", 9000)


def read(path: Path, packets: list[Packet], *tables: str) -> dict[str, list[dict[str, Any]]]:
    file = path / "a.pcapng"
    file.write_bytes(b"".join(pcapng(packets, {each.host: None for each in packets})))
    reading = Reading(tables, epoch_offset_ns=START_NS)
    return {name: table.to_pylist() for name, table in read_tables(file, reading)}


def datagram(at_ns: int, src: tuple[str, int], dst: tuple[str, int], payload: bytes, host: int = 0) -> Datagram:
    """A packet as host 0, which has the address of ``A``, or host 1 recorded it."""
    direction = OUTBOUND if (src[0] == A[0]) == (host == 0) else INBOUND
    return Datagram(START_NS + at_ns, host, direction, *src, *dst, 0, 0, 0, payload)


def segment(
    at_ns: int, src: tuple[str, int], seq: int, ack: int, flags: int, host: int = 0, payload: bytes = b""
) -> Packet:
    dst = B if src == A else A
    direction = OUTBOUND if (src == A) == (host == 0) else INBOUND
    return Packet(START_NS + at_ns, host, direction, *src, *dst, seq, ack, flags, payload)


def test_packets_of_udp_are_a_flow_of_both_sides(tmp_path: Path) -> None:
    dialer = (A[0], 41000)
    packets = [datagram(0, dialer, B, b"hello"), datagram(5, B, dialer, b"hi"), datagram(9, dialer, B, b"bye")]
    (row,) = read(tmp_path, packets, "conns")["conns"]
    assert row.pop("uid").startswith("U")
    assert row == {
        "ts_ns": 0, "conn": "10.0.0.1:41000-10.0.0.2:9000/udp", "id_orig_h": "10.0.0.1", "id_orig_p": 41000,
        "id_resp_h": "10.0.0.2", "id_resp_p": 9000, "proto": 17, "duration_ns": 9, "opened_ns": 5, "closed_ns": None,
        "orig_bytes": 8, "resp_bytes": 2, "conn_state": "SF", "history": "Dd", "missed_bytes": None, "orig_pkts": 2,
        "orig_ip_bytes": 2 * 28 + 8, "resp_pkts": 1, "resp_ip_bytes": 30, "orig_retx_bytes": None,
        "resp_retx_bytes": None, "vantage_host": 0, "orig_tap": "tx",
    }  # fmt: skip


@pytest.mark.parametrize(("sender", "state", "history"), [(A, "SHR", "d"), (B, "S0", "D")])
def test_a_flow_of_one_side_is_never_open(tmp_path: Path, sender: tuple[str, int], state: str, history: str) -> None:
    """Of equal ports, the higher address is the originator."""
    (row,) = read(tmp_path, [datagram(0, sender, B if sender == A else A, b"x")], "conns")["conns"]
    assert (row["conn_state"], row["history"], row["opened_ns"]) == (state, history, None)


def test_both_vantages_have_the_same_flow_though_each_saw_its_own_packet_first(tmp_path: Path) -> None:
    at_a = [datagram(0, A, B, b"a"), datagram(7, B, A, b"b")]
    at_b = [datagram(1, B, A, b"b", host=1), datagram(8, A, B, b"a", host=1)]
    one, other = read(tmp_path, at_a + at_b, "conns")["conns"]
    assert (one["uid"], one["conn"]) == (other["uid"], other["conn"])
    assert {one["orig_tap"], other["orig_tap"]} == {"tx", "rx"}


@pytest.mark.parametrize(("pause_ns", "flows"), [(IDLE_NS, 1), (IDLE_NS + 1, 2)])
def test_a_silence_ends_a_flow(tmp_path: Path, pause_ns: int, flows: int) -> None:
    packets = [datagram(0, A, B, b"a"), datagram(1, B, A, b"b"), datagram(1 + pause_ns, A, B, b"c")]
    rows = read(tmp_path, packets, "conns")["conns"]
    assert len({row["uid"] for row in rows}) == len(rows) == flows
    assert sum(row["orig_bytes"] + row["resp_bytes"] for row in rows) == 3


def test_payload_of_udp_is_a_class_of_its_own(tmp_path: Path) -> None:
    (row,) = read(tmp_path, [datagram(0, A, B, bytes(100))], "wire")["wire"]
    classes = ("payload_bytes", "retx_bytes", "header_bytes", "pure_ack_bytes", "datagram_bytes", "other_bytes")
    assert [row[name] for name in classes] == [0, 0, 28, 0, 100, 0]
    assert row["wire_bytes"] == 128


SIMULTANEOUS = {
    0: [segment(0, A, 10, 0, SYN), segment(9, B, 70, 0, SYN), segment(9, A, 10, 71, SYN | ACK),
        segment(20, B, 70, 11, SYN | ACK), segment(30, A, 11, 71, ACK, payload=b"abc"), segment(40, B, 71, 14, ACK)],
    1: [segment(1, B, 70, 0, SYN, 1), segment(10, A, 10, 0, SYN, 1), segment(10, B, 70, 11, SYN | ACK, 1),
        segment(19, A, 10, 71, SYN | ACK, 1), segment(39, A, 11, 71, ACK, 1, b"abc"), segment(39, B, 71, 14, ACK, 1)],
}  # fmt: skip
"""Two hosts open a connection to each other at once, as each of them sees it."""


def test_a_simultaneous_open_is_one_connection_at_both_ends(tmp_path: Path) -> None:
    one, other = read(tmp_path, SIMULTANEOUS[0] + SIMULTANEOUS[1], "conns")["conns"]
    assert one["conn"] == other["conn"] == "10.0.0.2:9000-10.0.0.1:9000"
    assert one["uid"] == other["uid"]
    for row in (one, other):
        assert (row["conn_state"], row["orig_bytes"], row["resp_bytes"], row["missed_bytes"]) == ("S1", 0, 3, 0)
        assert row["opened_ns"] is not None


def test_repeated_syns_of_a_simultaneous_open_are_no_further_connections(tmp_path: Path) -> None:
    again = [segment(1, A, 10, 0, SYN), *SIMULTANEOUS[0][1:2], segment(10, A, 10, 0, SYN), segment(11, B, 70, 0, SYN)]
    packets = [SIMULTANEOUS[0][0], *again, *SIMULTANEOUS[0][2:]]
    packets.sort(key=lambda each: each.ts_ns)
    assert len(read(tmp_path, packets, "conns")["conns"]) == 1


def test_a_second_attempt_of_both_sides_is_another_connection(tmp_path: Path) -> None:
    """The secure channel of the first one failed, and both sides dialled again at once."""
    reset = [segment(50, A, 14, 71, RST | ACK)]
    second = [segment(100, A, 1010, 0, SYN), segment(105, B, 1070, 0, SYN), segment(105, A, 1010, 1071, SYN | ACK)]
    second.append(segment(120, B, 1070, 1011, SYN | ACK))
    rows = read(tmp_path, SIMULTANEOUS[0] + reset + second, "conns")["conns"]
    assert [row["ts_ns"] for row in rows] == [0, 100]
    assert len({row["uid"] for row in rows}) == 2


def test_a_host_that_dials_back_after_the_end_opens_another_connection(tmp_path: Path) -> None:
    there = [segment(0, A, 10, 0, SYN), segment(5, B, 70, 11, SYN | ACK), segment(6, A, 11, 71, FIN | ACK)]
    back = [segment(20, B, 500, 0, SYN), segment(20, A, 900, 501, SYN | ACK), segment(30, B, 501, 901, ACK)]
    rows = read(tmp_path, there + back, "conns")["conns"]
    assert [row["id_orig_h"] for row in rows] == [A[0], B[0]]
