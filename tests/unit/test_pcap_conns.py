"""The connections and wire tables on exchanges small enough to be counted by hand."""

from pathlib import Path
from typing import Any

import pytest

from metrics.pcap.tables import Reading, read_tables
from tests.synthetic_capture import ACK, FIN, INBOUND, OUTBOUND, RST, SYN, Packet, pcapng

START_NS = 1_700_000_000 * 10**9
HEADERS = 52


def sent(number: int, seq: int, flags: int, payload: bytes = b"") -> Packet:
    return Packet(START_NS + number, 0, OUTBOUND, "10.0.0.1", 40000, "10.0.0.2", 7000, seq, 0, flags, payload)


def answered(number: int, seq: int, flags: int, payload: bytes = b"", ack: int = 0) -> Packet:
    return Packet(START_NS + number, 0, INBOUND, "10.0.0.2", 7000, "10.0.0.1", 40000, seq, ack, flags, payload)


OPEN = [sent(0, 10, SYN), answered(1, 70, SYN | ACK, ack=11), sent(2, 11, ACK)]


def read(path: Path, packets: list[Packet], *tables: str, **options: Any) -> dict[str, list[dict[str, Any]]]:
    file = path / "a.pcapng"
    file.write_bytes(b"".join(pcapng(packets, (0,))))
    return {name: table.to_pylist() for name, table in read_tables(file, Reading(tables, **options))}


def test_a_connection_in_zeeks_terms(tmp_path: Path) -> None:
    data = [
        sent(3, 11, ACK, b"abcdef"),
        sent(4, 11, ACK, b"abcdefgh"),
        sent(5, 21, ACK, b"x"),
        answered(6, 71, ACK, b"ok"),
    ]
    packets = [*OPEN, *data, sent(7, 22, FIN | ACK), answered(8, 73, FIN | ACK)]
    (row,) = read(tmp_path, packets, "conns", epoch_offset_ns=START_NS)["conns"]
    assert row.pop("uid").startswith("C")
    assert row == {
        "ts_ns": 0, "conn": "10.0.0.1:40000-10.0.0.2:7000", "id_orig_h": "10.0.0.1", "id_orig_p": 40000,
        "id_resp_h": "10.0.0.2", "id_resp_p": 7000, "proto": 6, "duration_ns": 8, "opened_ns": 1, "closed_ns": 7,
        "orig_bytes": 11, "resp_bytes": 2,
        "conn_state": "SF", "history": "ShADdFf", "missed_bytes": 2, "orig_pkts": 6, "orig_ip_bytes": 6 * HEADERS + 15,
        "resp_pkts": 3, "resp_ip_bytes": 3 * HEADERS + 2, "orig_retx_bytes": 6, "resp_retx_bytes": 0,
        "vantage_host": 0, "orig_tap": "tx",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("packets", "state"),
    [
        (OPEN[:1], "S0"),
        (OPEN, "S1"),
        ([*OPEN, sent(3, 11, FIN | ACK)], "S2"),
        ([*OPEN, answered(3, 71, FIN | ACK)], "S3"),
        ([*OPEN, sent(3, 11, RST)], "RSTO"),
        ([*OPEN, answered(3, 71, RST)], "RSTR"),
        ([OPEN[0], answered(1, 0, RST | ACK)], "REJ"),
        ([OPEN[0], sent(1, 11, RST)], "RSTOS0"),
        ([OPEN[0], sent(1, 11, FIN)], "SH"),
        ([OPEN[1], answered(2, 71, RST)], "RSTRH"),
        ([OPEN[1], answered(2, 71, FIN)], "SHR"),
        ([sent(3, 11, ACK, b"abc")], "OTH"),
    ],
)
def test_connection_states(tmp_path: Path, packets: list[Packet], state: str) -> None:
    assert [row["conn_state"] for row in read(tmp_path, packets, "conns")["conns"]] == [state]


@pytest.mark.parametrize(
    ("packets", "opened_ns", "closed_ns"),
    [
        (OPEN, 1, None),
        (OPEN[:1], None, None),
        (OPEN[1:2], None, None),
        ([*OPEN, answered(3, 71, FIN | ACK), sent(4, 11, FIN | ACK)], 1, 3),
        ([*OPEN, sent(3, 11, FIN | ACK), answered(4, 71, RST)], 1, 3),
        ([OPEN[0], answered(1, 0, RST | ACK)], None, 1),
    ],
)
def test_a_connection_is_open_from_both_syns_to_the_first_fin_or_rst(
    tmp_path: Path, packets: list[Packet], opened_ns: int | None, closed_ns: int | None
) -> None:
    (row,) = read(tmp_path, packets, "conns", epoch_offset_ns=START_NS)["conns"]
    assert (row["opened_ns"], row["closed_ns"]) == (opened_ns, closed_ns)


def test_the_originator_is_known_from_the_answer_alone(tmp_path: Path) -> None:
    packets = [answered(1, 70, SYN | ACK, ack=11), sent(2, 14, ACK, b"d")]
    (row,) = read(tmp_path, packets, "conns")["conns"]
    assert [row["id_orig_p"], row["orig_bytes"], row["missed_bytes"]] == [40000, 4, 3]


def test_without_a_handshake_a_stream_starts_at_its_lowest_number(tmp_path: Path) -> None:
    packets = [sent(1, 5, ACK, b"later"), sent(2, 2**32 - 5, ACK, b"earlier..."), sent(3, 9, ACK)]
    (row,) = read(tmp_path, packets, "conns")["conns"]
    assert [row["id_orig_p"], row["orig_bytes"], row["missed_bytes"]] == [40000, 15, 0]


def test_payload_of_a_syn_comes_after_its_number(tmp_path: Path) -> None:
    packets = [sent(0, 10, SYN, b"fast"), answered(1, 70, SYN | ACK), sent(2, 15, ACK, b"open")]
    (row,) = read(tmp_path, packets, "conns")["conns"]
    assert [row["orig_bytes"], row["missed_bytes"], row["orig_retx_bytes"]] == [8, 0, 0]


@pytest.mark.parametrize("other", [5, 72, 10**6, 3 * 10**9])
def test_the_last_answer_to_a_syn_opens_the_connection(tmp_path: Path, other: int) -> None:
    """The host stopped to listen and listened again, while the first answer was lost or under way."""
    lost = [answered(1, other, SYN | ACK, ack=11), answered(2, other // 2, SYN | ACK, ack=11)]
    taken = [answered(4, 70, SYN | ACK, ack=11), sent(5, 11, ACK), answered(6, 71, ACK, b"ok")]
    packets = [sent(0, 10, SYN), *lost, sent(3, 10, SYN), *taken]
    (row,) = read(tmp_path, packets, "conns")["conns"]
    assert (row["orig_bytes"], row["resp_bytes"], row["missed_bytes"]) == (0, 2, 0)


def test_data_of_an_older_connection_is_counted_apart(tmp_path: Path) -> None:
    tables = read(tmp_path, [*OPEN, sent(3, 1, ACK, b"stale")], "captures", "wire", "conns")
    assert tables["captures"][0]["n_no_stream"] == 1
    assert tables["conns"][0]["orig_bytes"] == 0
    assert sum(row["retx_bytes"] for row in tables["wire"]) == 5


def test_wire_bytes_by_second(tmp_path: Path) -> None:
    packets = [*OPEN, sent(3, 11, ACK, b"abc"), sent(10**9, 11, ACK, b"abcd")]
    rows = read(tmp_path, packets, "wire", epoch_offset_ns=START_NS)["wire"]
    found = {(row.pop("tap"), row.pop("at_ns")): row for row in rows}
    empty = dict.fromkeys(
        ("payload_bytes", "retx_bytes", "header_bytes", "pure_ack_bytes", "datagram_bytes", "other_bytes"), 0
    )
    empty |= {"vantage_host": 0}
    data = {"payload_bytes": 3, "header_bytes": HEADERS}
    again = {"payload_bytes": 1, "retx_bytes": 3, "header_bytes": HEADERS}
    assert found == {
        ("tx", 0): empty | data | {"packets": 3, "wire_bytes": 3 * HEADERS + 3, "pure_ack_bytes": 2 * HEADERS},
        ("rx", 0): empty | {"packets": 1, "wire_bytes": HEADERS, "pure_ack_bytes": HEADERS},
        ("tx", 10**9): empty | again | {"packets": 1, "wire_bytes": HEADERS + 4},
    }
    shifted = read(tmp_path, packets, "wire", epoch_offset_ns=START_NS, origin_ns=400)["wire"]
    assert {row["at_ns"] for row in shifted} == {400 - 10**9, 400}


def test_spans_divide_a_frame_that_lies_in_several_seconds(tmp_path: Path) -> None:
    from peer import wire
    from peer.core.frames import Data

    data = wire.encode(Data(1, (), 1, 1, bytes(100)))
    packets = [
        *OPEN,
        sent(3, 11, ACK, data[:50]),
        sent(10**9, 61, ACK, data[50:60]),
        sent(10**9 + 1, 71, ACK, data[60:]),
    ]
    tables = read(tmp_path, packets, "frames", "spans", epoch_offset_ns=START_NS)
    (frame,) = tables["frames"]
    assert [frame["n_seconds"], frame["n_segments"], frame["t_first_ns"], frame["t_last_ns"]] == [2, 3, 3, 10**9 + 1]
    assert [(row["at_ns"], row["span_bytes"]) for row in tables["spans"]] == [(0, 50), (10**9, len(data) - 50)]
