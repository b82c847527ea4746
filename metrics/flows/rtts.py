"""Measure round-trip times in captures: of handshakes, and from data to its acknowledgement."""

from typing import Final

import numpy as np

from metrics.pcap.flows import ORIG, RESP, TcpConnections, factorise
from metrics.pcap.headers import ACK, FIN, RST, SYN
from metrics.pcap.walk import Ints

_MASK: Final = 0xFFFFFFFF
_NEVER: Final = np.iinfo(np.int64).max


def time_handshakes(connections: TcpConnections) -> Ints:
    """Return the time from each connection's SYN to the ACK that ends the handshake, -1 if either was not seen.

    This is a full round trip at any vantage. A SYN that was sent several times, or by both sides, gives none.
    """
    segments, count = connections.segments, len(connections.names)
    flags, conn = segments.flags & (SYN | ACK | RST), segments.stream // 2
    of_orig = segments.stream % 2 == ORIG
    syn = of_orig & (flags == SYN)
    synced = ~of_orig & (flags == SYN | ACK)
    started, answered = (_firsts(segments.ts_ns[rows], conn[rows], count) for rows in (syn, synced))
    ack = of_orig & (flags == ACK) & (segments.ts_ns >= answered[conn])
    ended = _firsts(segments.ts_ns[ack], conn[ack], count)
    once = np.bincount(conn[flags == SYN], minlength=count) == 1
    return np.where(once & (answered != _NEVER) & (ended != _NEVER), ended - started, -1)


def time_acknowledgements(connections: TcpConnections, ack: Ints) -> tuple[Ints, Ints]:
    """Return the times from segments to the first acknowledgement of exactly their end.

    Segments whose end was sent more than once give none: it is not known which of them was acknowledged (Karn).

    Args:
        connections: the connections of a capture.
        ack: the acknowledgement number of each of their segments.

    Returns:
        The streams of the segments, and the times in ns.
    """
    segments = connections.segments
    sent = np.flatnonzero(segments.payload_bytes > 0)
    length = segments.payload_bytes[sent] + ((segments.flags[sent] & FIN) != 0) + ((segments.flags[sent] & SYN) != 0)
    acked = np.flatnonzero((segments.flags & (ACK | RST)) == ACK)
    opposite = segments.stream[acked] ^ (ORIG ^ RESP)
    stream = np.concatenate((segments.stream[sent], opposite))
    number = np.concatenate((segments.seq[sent] + length & _MASK, ack[acked]))
    place, count = factorise(stream, number)
    of_sent, of_acks = place[: len(sent)], place[len(sent) :]
    once = np.bincount(of_sent, minlength=count)[of_sent] == 1
    seen = _firsts(segments.ts_ns[acked], of_acks, count)[of_sent]
    times = seen - segments.ts_ns[sent]
    told = once & (seen != _NEVER) & (times >= 0)
    return segments.stream[sent][told], times[told]


def _firsts(ts_ns: Ints, group: Ints, count: int) -> Ints:
    """Return the earliest instant of each group, ``_NEVER`` if it has none."""
    first = np.full(count, _NEVER)
    np.minimum.at(first, group, ts_ns)
    return first
