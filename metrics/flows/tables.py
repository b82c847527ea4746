"""Make TCP connections and UDP flows of several captures, each once: bytes and losses each way, and round trips.

The figures of each direction of a flow come from one vantage: where its packets left, if that was recorded, otherwise
in between, and only then where they arrived. Where packets leave, all of them are seen, also packets that are lost
later, and round trips begin and end there. Losses are known if the arrival of the packets was recorded, too.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metrics.flows.directions import find_directions
from metrics.flows.rtts import time_acknowledgements, time_handshakes
from metrics.flows.vantages import UDP, Sighted
from metrics.pcap.flows import ORIG, RESP, UNKNOWN, TcpConnections, factorise, find_connections, first_of
from metrics.pcap.headers import TCP, Packets, address_text
from metrics.pcap.records import MID, RX, TAPS, TX
from metrics.pcap.streams import Streams, reassemble
from metrics.pcap.summaries import summarise_connections
from metrics.pcap.walk import Bools, Ints

_STRING, _INT32, _INT64 = pa.string(), pa.int32(), pa.int64()
SIDES: Final = ("orig", "resp")

_OF_FLOW: Final = (
    ("proto", _STRING),  # "tcp" or "udp"
    ("uid", _STRING),  # as in ``conns``, also for UDP
    ("orig_host", _STRING),  # host of the side that began; null = neither the captures nor the mapping say it
    ("resp_host", _STRING),
    ("id_orig_h", _STRING),
    ("id_orig_p", _INT32),
    ("id_resp_h", _STRING),
    ("id_resp_p", _INT32),
    ("ts_ns", _INT64),  # the first packet
    ("duration_ns", _INT64),  # from the first packet to the last one
    ("conn_state", _STRING),  # as in ``conns``; null for UDP, like the next two
    ("history", _STRING),
    ("handshake_rtt_ns", _INT64),  # from the SYN to the ACK; null if the handshake was not seen, or repeated
)
_OF_SIDE: Final = (
    ("capture", _STRING),  # the vantage of the side's figures; null = none has a packet of it
    ("tap", _STRING),  # "tx": where the packets left, "mid", or "rx"
    ("packets", _INT64),
    ("ip_bytes", _INT64),
    ("payload_bytes", _INT64),  # TCP: the stream's bytes, each once
    ("retx_packets", _INT64),  # TCP segments with bytes that had been seen; null for UDP
    ("retx_bytes", _INT64),  # the bytes that had been seen
    ("missed_bytes", _INT64),  # holes in the stream that no packet fills
    ("lost_packets", _INT64),  # left and did not arrive; null unless both were recorded
    ("unsent_packets", _INT64),  # arrived and were not seen to leave: of another size, or missed by the capture
    ("rtt_samples", _INT64),  # acknowledged segments that give a round trip; null for UDP
    ("rtt_min_ns", _INT64),
    ("rtt_p50_ns", _INT64),
    ("rtt_max_ns", _INT64),
)

FLOWS: Final = pa.schema(
    [*_OF_FLOW, *((f"{side}_{name}", kind) for side in SIDES for name, kind in _OF_SIDE)],
)
"""A TCP connection, or all packets of UDP between two ports, over all captures."""

_NONE: Final = -1


@dataclass
class _Directions:
    """What each vantage saw of each direction of a flow, by rows; a direction is ``2 * flow + side``."""

    direction: Ints
    vantage: Ints
    tap: npt.NDArray[np.integer]
    first_ns: Ints
    last_ns: Ints
    figures: dict[str, Ints]  # the columns of ``_OF_SIDE`` that one vantage has; -1 = null
    member: Ints  # the row of each packet here; ``_NONE`` = none


@dataclass
class _Flows:
    """Flows over all vantages, and what each vantage saw."""

    columns: dict[str, list[Any]]  # the columns of ``_OF_FLOW`` that do not depend on the choice of a vantage
    seen: _Directions
    of_vantage: Mapping[tuple[int, int], dict[str, Any]]  # TCP, by flow and vantage: state, history, handshake


def build_flows(sighted: Sighted, hosts: Mapping[str, str]) -> pa.Table:
    """Return the table ``FLOWS`` of packets.

    Args:
        sighted: all packets of the flows.
        hosts: the host of each address that is known; other hosts follow from the capture in which their packets leave.
    """
    if not len(sighted.key):
        return FLOWS.empty_table()
    find_directions(sighted.packets, sighted.key, sighted.hosts, hosts)
    named = {**_find_hosts(sighted), **hosts}
    return pa.concat_tables([_tabulate(flows, sighted, named) for flows in (_find_tcp(sighted), _find_udp(sighted))])


def _find_hosts(sighted: Sighted) -> dict[str, str]:
    """Return the hosts of addresses whose packets leave at one vantage and arrive at no interface of it."""
    packets = sighted.packets
    src, ipv6 = packets.columns.src, packets.ipv6
    place, count = factorise(src, packets.host, packets.tap)
    first = first_of(place, count)
    seen = list(zip(src[first].tolist(), packets.host[first].tolist(), packets.tap[first].tolist(), strict=True))
    pairs = {wanted: {(address, vantage) for address, vantage, tap in seen if tap == wanted} for wanted in (TX, RX)}
    claims: dict[int, set[str]] = defaultdict(set)
    for address, vantage in pairs[TX] - pairs[RX]:
        claims[address].add(sighted.hosts[vantage])
    return {address_text(each, ipv6): min(names) for each, names in claims.items() if len(names) == 1}


# ------------------------------------------------------------------------------------------------------- TCP


def _find_tcp(sighted: Sighted) -> _Flows:
    packets = sighted.packets
    connections = find_connections(packets)
    streams = reassemble(connections.segments, connections.base)
    flow, count = _unify(connections)
    segments = connections.segments
    direction = np.repeat(2 * flow, 2) + np.tile((ORIG, RESP), len(flow))
    member = np.full(len(packets.host), _NONE, np.int64)
    member[segments.row] = segments.stream
    seen = _Directions(
        direction=direction,
        vantage=np.repeat(connections.host.astype(np.int64), 2),
        tap=connections.tap,
        first_ns=np.repeat(connections.start_ns, 2),
        last_ns=np.repeat(_last(segments.ts_ns, segments.stream // 2, len(flow)), 2),
        figures=_figure_streams(packets, connections, streams),
        member=member,
    )
    conns = summarise_connections(connections, streams, packets)
    rtt_ns = time_handshakes(connections).tolist()
    known = zip(flow.tolist(), connections.host.tolist(), *(conns[each].to_pylist() for each in _STATE), rtt_ns)  # noqa: B905
    of_vantage = {
        (each, vantage): {"conn_state": state, "history": history, "handshake_rtt_ns": _null(rtt)}
        for each, vantage, state, history, rtt in known
    }
    first = first_of(flow, count)
    names = ("uid", "id_orig_h", "id_orig_p", "id_resp_h", "id_resp_p")
    columns = {name: conns[name].take(pa.array(first)).to_pylist() for name in names}
    return _Flows(columns | {"proto": ["tcp"] * count}, seen, of_vantage)


_STATE: Final = ("conn_state", "history")


def _unify(connections: TcpConnections) -> tuple[Ints, int]:
    """Return the flow of each connection, of which every vantage has its own, and how many flows there are.

    A vantage that did not see a handshake does not know which connection between two ports it saw. The connection is
    the latest one that another vantage saw begin before this one's ended. If there is none, it is a flow of its own.
    """
    ended = _last(connections.segments.ts_ns, connections.segments.stream // 2, len(connections.names))
    begun: dict[str, list[tuple[int, str]]] = {}
    told = list(zip(connections.names, connections.uids, connections.base[ORIG::2].tolist(), strict=True))
    at = {(uid, vantage) for (_, uid, _), vantage in zip(told, connections.host.tolist(), strict=True)}
    for (name, uid, base), start_ns in zip(told, connections.start_ns.tolist(), strict=True):
        if base != UNKNOWN:
            begun.setdefault(name, []).append((start_ns, uid))
    chosen = []
    for (name, uid, base), vantage, end_ns in zip(told, connections.host.tolist(), ended.tolist(), strict=True):
        others = [] if base != UNKNOWN else begun.get(name, [])
        fitting = [known for known in others if known[0] <= end_ns and (known[1], vantage) not in at]
        chosen.append(max(fitting)[1] if fitting else uid)
    known_first = np.argsort(connections.base[ORIG::2] == UNKNOWN, kind="stable")
    code = {uid: number for number, uid in enumerate(dict.fromkeys(chosen[row] for row in known_first.tolist()))}
    return np.array([code[uid] for uid in chosen], np.int64), len(code)


def _figure_streams(packets: Packets, connections: TcpConnections, streams: Streams) -> dict[str, Ints]:
    """Return the figures of each stream."""
    segments, count = connections.segments, 2 * len(connections.names)
    stream = segments.stream[streams.payload]
    new_bytes = _sum(stream, streams.new_bytes, count)
    again = streams.retransmits.astype(np.int64)
    of_rtt, rtt_ns = time_acknowledgements(connections, packets.columns.ack[segments.row])
    return {
        "packets": np.bincount(segments.stream, minlength=count),
        "ip_bytes": _sum(segments.stream, packets.columns.ip_bytes[segments.row], count),
        "payload_bytes": streams.extent,
        "retx_packets": _sum(stream, again, count),
        "retx_bytes": _sum(stream, streams.length, count) - new_bytes,
        "missed_bytes": streams.extent - new_bytes,
        **_summarise_times(of_rtt, rtt_ns, count),
    }


def _summarise_times(group: Ints, values: Ints, count: int) -> dict[str, Ints]:
    """Return the number, least, median and largest of each group's values. The median is the lower of two values."""
    order = np.lexsort((values, group))
    values, starts = values[order], np.searchsorted(group[order], np.arange(count + 1))
    samples = np.diff(starts)
    places = {"min": starts[:-1], "p50": starts[:-1] + np.maximum(samples - 1, 0) // 2, "max": starts[1:] - 1}
    at = np.append(values, _NONE)
    found = {f"rtt_{name}_ns": np.where(samples > 0, at[place], _NONE) for name, place in places.items()}
    return {"rtt_samples": samples} | found


# ------------------------------------------------------------------------------------------------------- UDP


def _find_udp(sighted: Sighted) -> _Flows:
    packets, columns = sighted.packets, sighted.packets.columns
    rows = np.flatnonzero((columns.nature != TCP) & (columns.proto == UDP))
    ts_ns, vantage = packets.records.ts_ns[rows], packets.host[rows].astype(np.int64)
    source, target = (
        address[rows] << 16 | port[rows]
        for address, port in ((columns.src, columns.src_port), (columns.dst, columns.dst_port))
    )
    flow, count = factorise(np.minimum(source, target), np.maximum(source, target))
    head = _find_heads(flow, count, vantage, ts_ns)
    direction = 2 * flow + np.where(source == source[head][flow], ORIG, RESP)
    place, seen = factorise(direction, vantage)
    first = first_of(place, seen)
    member = np.full(len(packets.host), _NONE, np.int64)
    member[rows] = place
    last_ns = _last(ts_ns, place, seen)
    figures = {
        "packets": np.bincount(place, minlength=seen),
        "ip_bytes": _sum(place, columns.ip_bytes[rows], seen),
        "payload_bytes": _sum(place, sighted.udp_bytes[rows], seen),
    }
    found = _Directions(
        direction[first], vantage[first], packets.tap[rows][first], ts_ns[first], last_ns, figures, member
    )
    ends = [[address_text(each, packets.ipv6) for each in end] for end in _ends(columns.src, columns.dst, rows[head])]
    ports = _ends(columns.src_port, columns.dst_port, rows[head])
    names = [f"{a}:{p}-{b}:{q}" for a, p, b, q in zip(ends[0], ports[0], ends[1], ports[1], strict=True)]
    uids = ["U" + hashlib.blake2b(name.encode(), digest_size=9).hexdigest() for name in names]
    told: dict[str, list[Any]] = {
        "uid": uids,
        "id_orig_h": ends[0],
        "id_orig_p": ports[0],
        "id_resp_h": ends[1],
        "id_resp_p": ports[1],
    }
    return _Flows(told | {"proto": ["udp"] * count}, found, {})


def _find_heads(flow: Ints, count: int, vantage: Ints, ts_ns: Ints) -> Ints:
    """Return the first packet of each flow at the vantage with most of its packets, since clocks do not compare."""
    place, seen = factorise(flow, vantage)
    order = np.lexsort((ts_ns, vantage, -np.bincount(place, minlength=seen)[place], flow))
    return order[np.searchsorted(flow[order], np.arange(count))]


def _ends(source: npt.NDArray[np.integer], target: npt.NDArray[np.integer], rows: Ints) -> tuple[list[int], list[int]]:
    return source[rows].tolist(), target[rows].tolist()


# ------------------------------------------------------------------------------------------- one row per flow


def _tabulate(flows: _Flows, sighted: Sighted, named: Mapping[str, str]) -> pa.Table:
    count, seen = len(flows.columns["uid"]), flows.seen
    is_there = seen.figures["packets"] > 0
    senders = _choose(seen, is_there, 2 * count)
    receivers = _choose(seen, is_there & (seen.tap == RX), 2 * count)
    lost, unsent = _count_losses(seen, sighted, senders, receivers)
    columns: dict[str, Any] = dict(flows.columns)
    for side, name in enumerate(SIDES):
        columns[f"{name}_host"] = [named.get(address) for address in columns[f"id_{name}_h"]]
        own, tells = senders[side::2], senders[side::2] != _NONE
        vantage, tap = seen.vantage[own].tolist(), seen.tap[own].tolist()
        columns[f"{name}_capture"] = [
            sighted.vantages[where] if known else None for where, known in zip(vantage, tells, strict=True)
        ]
        columns[f"{name}_tap"] = [TAPS[each] if known else None for each, known in zip(tap, tells, strict=True)]
        figures = {each: np.where(tells, values[own], _NONE) for each, values in seen.figures.items()}
        figures |= {"lost_packets": lost[side::2], "unsent_packets": unsent[side::2]}
        for each, _ in _OF_SIDE[2:]:
            values = figures.get(each, np.full(count, _NONE))
            columns[f"{name}_{each}"] = pa.array(values, mask=values == _NONE)
    return pa.table(_complete(columns, flows, senders), schema=FLOWS)


def _complete(columns: dict[str, Any], flows: _Flows, senders: Ints) -> list[pa.Array]:
    """Add the values of the vantage that shows a flow's beginning: the originator's vantage, if there is one."""
    tellers = np.where(senders[ORIG::2] != _NONE, senders[ORIG::2], senders[RESP::2])
    seen, vantages = flows.seen, flows.seen.vantage[tellers].tolist()
    flow = seen.direction // 2
    same = np.flatnonzero(seen.vantage == seen.vantage[tellers][flow])
    same = same[seen.figures["packets"][same] > 0]
    first_ns = np.full(len(tellers), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, flow[same], seen.first_ns[same])
    columns["ts_ns"] = first_ns
    columns["duration_ns"] = _last(seen.last_ns[same], flow[same], len(tellers)) - first_ns
    said = [flows.of_vantage.get(key, {}) for key in enumerate(vantages)]
    columns |= {name: [each.get(name) for each in said] for name in (*_STATE, "handshake_rtt_ns")}
    return [pa.array(columns[field.name], field.type) for field in FLOWS]


def _choose(seen: _Directions, among: Bools, count: int) -> Ints:
    """Return the row of each direction with the best figures, ``_NONE`` if there is none."""
    rows = np.flatnonzero(among)
    rank = np.select([seen.tap[rows] == TX, seen.tap[rows] == MID], [0, 1], 2)
    order = rows[np.lexsort((seen.vantage[rows], -seen.figures["packets"][rows], rank, seen.direction[rows]))]
    return first_of(seen.direction, count, order)


def _count_losses(seen: _Directions, sighted: Sighted, senders: Ints, receivers: Ints) -> tuple[Ints, Ints]:
    """Count for each direction packets that left and did not arrive, and packets that arrived and did not leave.

    Packets count between the first and the last that both vantages have, since captures begin and end at different
    instants.
    """
    compared = (senders != _NONE) & (receivers != _NONE) & (seen.tap[senders] == TX)
    direction = np.flatnonzero(compared)
    is_sender, is_receiver = (np.zeros(len(seen.direction), np.bool_) for _ in range(2))
    is_sender[senders[direction]], is_receiver[receivers[direction]] = True, True
    rows = np.flatnonzero(seen.member != _NONE)
    rows = rows[(is_sender | is_receiver)[seen.member[rows]]]
    member, key = seen.member[rows], sighted.key[rows]
    own, left = seen.direction[member], is_sender[member]
    packet, _ = factorise(own, key, _number_repeats(member, key))
    matched = np.isin(packet, packet[left]) & np.isin(packet, packet[~left])
    counts = []
    for of_end in (left, ~left):
        inside = _inside(own[of_end], matched[of_end], len(senders))
        missing = np.bincount(own[of_end][inside & ~matched[of_end]], minlength=len(senders))
        counts.append(np.where(compared, missing, _NONE))
    return counts[0], counts[1]


def _number_repeats(member: Ints, key: Ints) -> Ints:
    """Return how many packets with its key each vantage had before each packet."""
    group, count = factorise(member, key)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(count))
    number = np.empty(len(group), np.int64)
    number[order] = np.arange(len(group)) - starts[group[order]]
    return number


def _inside(direction: Ints, matched: Bools, count: int) -> Bools:
    """Return which packets lie between the first and the last matched one of their direction, in order of time."""
    place = np.arange(len(direction))
    first, last = np.full(count, len(direction)), np.full(count, -1)
    np.minimum.at(first, direction[matched], place[matched])
    np.maximum.at(last, direction[matched], place[matched])
    return np.asarray((place > first[direction]) & (place < last[direction]))


def _last(values: Ints, group: Ints, count: int) -> Ints:
    """Return the largest value of each group."""
    last = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(last, group, values)
    return last


def _sum(group: Ints, values: npt.NDArray[np.integer], count: int) -> Ints:
    return np.bincount(group, values, count).astype(np.int64)


def _null(value: int) -> int | None:
    return None if value == _NONE else value
