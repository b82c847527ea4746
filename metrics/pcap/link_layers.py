"""Decode link layers: where the IP header of a packet starts, its type, and the direction of the packet.

All rules of link layers are here; ``docs/captures.md`` lists them for users.
Source: https://www.tcpdump.org/linktypes.html
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from metrics.pcap.records import OTHER_HOST, RX, TX, Records
from metrics.pcap.walk import Bytes, Ints, big_endian_16

ETHERTYPE_IPV4: Final = 0x0800
ETHERTYPE_IPV6: Final = 0x86DD
ANY_IP: Final = -1
"""The link layer does not say which version of IP a packet has; the first bits of the header do."""

_ETHERNET, _SLL, _SLL2, _NULL, _LOOP = 1, 113, 276, 0, 108
_RAW_IP = (12, 14, 101, 228, 229)


class _Header(NamedTuple):
    size: int
    type_at: int  # offset of the EtherType


_HEADERS: Final = {_ETHERNET: _Header(14, 12), _SLL: _Header(16, 14), _SLL2: _Header(20, 0)}

_FAMILY_BYTES = 4
_FAMILY_IPV4 = 2
_FAMILIES_IPV6 = (10, 23, 24, 28, 30)  # Linux, Windows, NetBSD and OpenBSD, FreeBSD, macOS

_VLAN_TYPES = (0x8100, 0x88A8, 0x9100)
_MPLS_TYPES = (0x8847, 0x8848)
_PPPOE_TYPE = 0x8864
_TAG_TYPES = (*_VLAN_TYPES, *_MPLS_TYPES, _PPPOE_TYPE)
_TAG_BYTES, _PPPOE_BYTES = 4, 8
_MAX_TAGS = 8
_PPP_IPV4, _PPP_IPV6 = 0x0021, 0x0057
_NOT_IP = 0

_SLL_OTHER_HOST, _SLL_OUTGOING = 3, 4


def strip_links(records: Records, linktypes: Ints, tap: npt.NDArray[np.int8]) -> tuple[Ints, Ints]:
    """Find where each packet's IP header starts.

    Args:
        records: packets.
        linktypes: the type of each of their interfaces.
        tap: where each was seen; set here if the link layer shows it.

    Returns:
        (at, type): the offset in the file, -1 if the link layer is unknown or cut; the EtherType, or ``ANY_IP``.
    """
    at, ethertype = records.start.copy(), np.full(len(records), ANY_IP, np.int64)
    for linktype in set(linktypes.tolist()):
        if linktype in _RAW_IP:
            continue
        mine = np.flatnonzero((linktypes == linktype)[records.interface])
        header = _HEADERS.get(linktype)
        if header is not None:
            mine = _step(records, at, mine, header.size)
            ethertype[mine] = big_endian_16(records.data, records.start[mine] + header.type_at)
            if linktype != _ETHERNET:
                _read_direction(records, mine, linktype, tap)
        elif linktype in (_NULL, _LOOP):
            mine = _step(records, at, mine, _FAMILY_BYTES)
            ethertype[mine] = _type_of_family(records.data, records.start[mine])
        else:
            at[mine] = -1
    if not _HEADERS.keys().isdisjoint(linktypes.tolist()):
        _skip_tags(records, at, ethertype)
    return at, ethertype


def _step(records: Records, at: Ints, rows: Ints, size: int) -> Ints:
    """Step over a header; return the rows that have all of it."""
    whole = records.cap_bytes[rows] >= size
    at[rows[~whole]] = -1
    at[rows[whole]] += size
    return rows[whole]


def _read_direction(records: Records, rows: Ints, linktype: int, tap: npt.NDArray[np.int8]) -> None:
    start = records.start[rows]
    kind = records.data[start + 10] if linktype == _SLL2 else big_endian_16(records.data, start)
    tap[rows] = np.select([kind == _SLL_OUTGOING, kind == _SLL_OTHER_HOST], [TX, OTHER_HOST], RX)


def _type_of_family(data: Bytes, at: Ints) -> Ints:
    """Return the type that an address family stands for, in the byte order of the machine that recorded it."""
    first, last = big_endian_16(data, at), big_endian_16(data, at + 2)
    family = np.where(first == 0, last, np.where(last == 0, first >> 8, 0))
    return np.select(
        [family == _FAMILY_IPV4, np.isin(family, _FAMILIES_IPV6)], [ETHERTYPE_IPV4, ETHERTYPE_IPV6], _NOT_IP
    )


def _skip_tags(records: Records, at: Ints, ethertype: Ints) -> None:
    """Step over VLAN tags, MPLS labels and PPPoE headers."""
    end = records.start + records.cap_bytes
    for _ in range(_MAX_TAGS):
        rows = np.flatnonzero(np.isin(ethertype, _TAG_TYPES) & (at >= 0))
        if not len(rows):
            return
        size = np.where(ethertype[rows] == _PPPOE_TYPE, _PPPOE_BYTES, _TAG_BYTES)
        cut = at[rows] + size > end[rows]
        at[rows[cut]] = -1
        rows, size = rows[~cut], size[~cut]
        ethertype[rows] = _type_behind_tag(records.data, at[rows], ethertype[rows], size)
        at[rows] += size


def _type_behind_tag(data: Bytes, at: Ints, ethertype: Ints, size: Ints) -> Ints:
    last = big_endian_16(data, at + size - 2)
    is_bottom = data[at + 2] & 1 == 1  # of the stack of MPLS labels
    of_ppp = np.select([last == _PPP_IPV4, last == _PPP_IPV6], [ETHERTYPE_IPV4, ETHERTYPE_IPV6], _NOT_IP)
    of_mpls = np.where(is_bottom, ANY_IP, ethertype)
    return np.select([ethertype == _PPPOE_TYPE, np.isin(ethertype, _MPLS_TYPES)], [of_ppp, of_mpls], last)
