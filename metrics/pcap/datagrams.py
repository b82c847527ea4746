"""Group UDP packets into flows: the packets between two ports, as a host saw them, without a long silence between them.

UDP shows neither which side opened a flow nor when the flow ends. A flow ends with a silence of ``IDLE_NS``. It has the
columns of a TCP connection if they have a meaning for UDP. Its name ends in ``SUFFIX``, since a connection may have the
same ports.
"""

import hashlib
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.pcap.flows import ORIG, RESP, factorise, first_of, guess_originators, last_of, number_flows
from metrics.pcap.headers import UDP, Packets, address_text
from metrics.pcap.records import MID, RX, TAPS, TX, host_column
from metrics.pcap.schemas import CONNS
from metrics.pcap.walk import Bools, Ints

PROTO_UDP: Final = 17
SUFFIX: Final = "/udp"

IDLE_NS: Final = 60_000_000_000
"""Source: Zeek, ``udp_inactivity_timeout``."""

_OPPOSITE: Final = {TX: RX, RX: TX, MID: MID}


def summarise_flows(packets: Packets) -> pa.Table:
    """Return the rows of the table ``conns`` for UDP.

    The originator is the side with the larger port; if the ports are equal, the side with the higher address. So both
    hosts agree, although each may have seen its own packet first. A flow on which both sides have sent is ``SF``, as
    with Zeek.
    """
    rows = np.flatnonzero(packets.columns.nature == UDP)
    rows = rows[np.argsort(packets.records.ts_ns[rows], kind="stable")]
    if not len(rows):
        return CONNS.empty_table()
    among, _, upward = number_flows(packets, rows)
    incarnation = _number_incarnations(among, packets.records.ts_ns[rows])
    flow, count = factorise(among, incarnation)
    first = first_of(flow, count)
    orig_is_low = guess_originators(packets, rows[first], upward[first])
    direction = 2 * flow + np.where(upward == orig_is_low[flow], ORIG, RESP)
    found = _name(packets, rows[first], direction[first] % 2 == ORIG, incarnation[first].tolist())
    found |= _count(packets, rows, direction, count) | _time(packets.records.ts_ns[rows], direction, count)
    missing = {field.name: pa.nulls(count, field.type) for field in CONNS}
    return pa.table([pa.array((missing | found)[field.name], field.type) for field in CONNS], schema=CONNS)


def _name(packets: Packets, rows: Ints, forth: Bools, incarnation: list[int]) -> dict[str, Any]:
    """Return what identifies flows. ``rows``: a packet of each flow; ``forth``: whether the originator sent it."""
    columns, found = packets.columns, dict[str, Any]()
    for side, is_source in (("orig", forth), ("resp", ~forth)):
        address = np.where(is_source, columns.src[rows], columns.dst[rows]).tolist()
        found[f"id_{side}_h"] = [address_text(each, packets.ipv6) for each in address]
        found[f"id_{side}_p"] = np.where(is_source, columns.src_port[rows], columns.dst_port[rows]).tolist()
    ends = zip(*(found[f"id_{side}_{part}"] for side in ("orig", "resp") for part in "hp"), strict=True)
    names = [f"{orig}:{orig_port}-{resp}:{resp_port}{SUFFIX}" for orig, orig_port, resp, resp_port in ends]
    taps = [tap if own else _OPPOSITE[tap] for tap, own in zip(packets.tap[rows].tolist(), forth.tolist(), strict=True)]
    return found | {
        "conn": names,
        "uid": [_uid(name, number) for name, number in zip(names, incarnation, strict=True)],
        "proto": np.full(len(rows), PROTO_UDP),
        "vantage_host": host_column(packets.host[rows]),
        "orig_tap": [TAPS[tap] for tap in taps],
    }


def _count(packets: Packets, rows: Ints, direction: Ints, count: int) -> dict[str, Ints]:
    """Count the packets and bytes of both sides of each flow."""
    columns = packets.columns
    values: dict[str, npt.NDArray[Any]] = {
        "bytes": columns.payload_bytes[rows],
        "pkts": np.ones(len(rows)),
        "ip_bytes": columns.ip_bytes[rows],
    }
    return {
        f"{name}_{what}": np.bincount(direction, each, 2 * count).astype(np.int64)[side::2]
        for side, name in ((ORIG, "orig"), (RESP, "resp"))
        for what, each in values.items()
    }


def _time(ts_ns: Ints, direction: Ints, count: int) -> dict[str, Any]:
    """Find when flows began and ended, and which sides have sent. ``ts_ns``: in order of time."""
    first = first_of(direction, 2 * count).reshape(-1, 2)
    has_sent, start = first >= 0, np.where(first >= 0, first, len(ts_ns)).min(1)
    both = has_sent.all(1)
    last = last_of(direction // 2, count, np.arange(len(ts_ns)))
    order = np.where(first[:, ORIG] < first[:, RESP], "Dd", "dD")
    return {
        "ts_ns": ts_ns[start],
        "duration_ns": ts_ns[last] - ts_ns[start],
        "opened_ns": pa.array(ts_ns[first.max(1)], mask=~both),
        "conn_state": np.select([both, has_sent[:, ORIG]], ["SF", "S0"], "SHR").tolist(),
        "history": np.select([both, has_sent[:, ORIG]], [order, "D"], "d").tolist(),
    }


def _number_incarnations(flow: Ints, ts_ns: Ints) -> Ints:
    """Return how many silences came before each packet within its flow."""
    order = np.argsort(flow, kind="stable")
    silent = (np.diff(flow[order]) == 0) & (np.diff(ts_ns[order]) > IDLE_NS)
    total = np.concatenate(([0], np.cumsum(silent)))
    starts = first_of(flow[order], int(flow.max(initial=-1)) + 1)
    found = np.empty(len(flow), np.int64)
    found[order] = total - total[starts[flow[order]]]
    return found


def _uid(name: str, incarnation: int) -> str:
    return "U" + hashlib.blake2b(f"{name}/{incarnation}".encode(), digest_size=9).hexdigest()
