"""A capture file of any supported format, opened."""

from __future__ import annotations

from pathlib import Path

from metrics.pcap.classic import is_classic, read_classic
from metrics.pcap.pcapng import is_pcapng, read_pcapng
from metrics.pcap.records import Records, host_of, map_file, no_records
from metrics.pcap.walk import Bytes


def read_bytes(data: Bytes) -> Records:
    """The packets in a capture's bytes. What is no capture at all yields none, and says so by ``unread_bytes``."""
    if is_classic(data):
        return read_classic(data)
    if is_pcapng(data):
        return read_pcapng(data)
    return no_records(data, len(data))


def read_file(path: Path) -> Records:
    """The packets of a capture file, its interfaces bound to their hosts (``records.host_of``)."""
    records = read_bytes(map_file(path))
    for interface in records.interfaces:
        interface.host = host_of(interface.name, path)
    return records
