"""A capture file of any supported format, opened."""

from metrics.pcap.classic import is_classic, read_classic
from metrics.pcap.pcapng import is_pcapng, read_pcapng
from metrics.pcap.records import EVERYTHING, Records, Selection, no_records
from metrics.pcap.walk import Bytes


def read_bytes(data: Bytes, file_name: str = "", selection: Selection = EVERYTHING) -> Records:
    """The packets in a capture's bytes. What is no capture at all yields none, and says so by ``unread_bytes``."""
    if is_classic(data):
        return read_classic(data, file_name, selection)
    if is_pcapng(data):
        return read_pcapng(data, file_name, selection)
    return no_records(data, len(data))
