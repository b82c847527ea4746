"""A capture file of any supported format, opened."""

from collections.abc import Iterator
from dataclasses import replace

from metrics.pcap.classic import is_classic, read_classic
from metrics.pcap.pcapng import is_pcapng, read_pcapng
from metrics.pcap.records import EVERYTHING, Records, Selection, join, no_records
from metrics.pcap.walk import Bytes


def read_bytes(data: Bytes, file_name: str = "", selection: Selection = EVERYTHING) -> Records:
    """The packets in a capture's bytes. What is no capture at all yields none, and says so by ``unread_bytes``."""
    parts = list(_read(data, file_name, selection, None))
    if not parts:
        return no_records(data, len(data))
    return replace(join(parts), interfaces=parts[-1].interfaces, unread_bytes=parts[-1].unread_bytes)


def read_windows(
    data: Bytes, file_name: str, window_bytes: int, selection: Selection = EVERYTHING
) -> Iterator[Records]:
    """The same packets, those of about so many bytes of the file at a time.

    ``interfaces`` is complete at the end, and ``unread_bytes`` is that of the last; none is yielded of what is no
    capture.
    """
    yield from _read(data, file_name, selection, window_bytes)


def _read(data: Bytes, file_name: str, selection: Selection, window_bytes: int | None) -> Iterator[Records]:
    for is_it, read in ((is_classic, read_classic), (is_pcapng, read_pcapng)):
        if is_it(data):
            yield from read(data, file_name, selection, window_bytes)
            return
