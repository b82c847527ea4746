"""A peer's Prometheus metrics. They are read from its own counts at each scrape, so counting costs nothing more."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from peer.core.frames import kind_names
from peer.runtime.exposition import COUNTER, GAUGE, Family, single
from peer.runtime.foreign_processes import Processes
from peer.runtime.instances import Instances
from peer.runtime.line_programs import Programs
from peer.runtime.scripted import Scripted

_EVENTS = {
    "deliver": ("trellis_deliveries_total", "First copies on a subscribed topic, including own messages."),
    "duplicate": ("trellis_duplicates_total", "Copies of a message after the first."),
    "relay": ("trellis_relays_total", "First copies on topics that the node does not subscribe to."),
    "publish": ("trellis_publications_total", "Messages that the node published."),
}


def collect(slot: Instances | Programs | Processes | Scripted) -> Iterator[Family]:
    """Yield the present metrics of a peer. For another program, these are only the events that it reported."""
    if isinstance(slot, Instances):
        yield from _collect_node(slot)
    else:
        for event, count in slot.events.items():
            if event in _EVENTS:
                yield single(COUNTER, *_EVENTS[event], count)


def _collect_node(instances: Instances) -> Iterator[Family]:
    counts, driver = instances.counts, instances.driver
    links, queued_bytes = (driver.links.links, driver.links.queued_bytes) if driver is not None else (0, 0)
    yield _by_kind("trellis_sent_frames_total", "Frames handed to the socket.", counts.sent_frames)
    yield _by_kind("trellis_sent_bytes_total", "Bytes of frames handed to the socket.", counts.sent_bytes)
    yield _by_kind("trellis_received_frames_total", "Frames read.", counts.received_frames)
    yield _by_kind("trellis_received_bytes_total", "Bytes of frames read.", counts.received_bytes)
    yield Family(COUNTER, "trellis_dropped_frames_total", "Frames that were not sent.", counts.dropped, "reason")
    text = "Connections refused or closed because of their source or of what arrived over them."
    yield Family(COUNTER, "trellis_rejects_total", text, counts.rejected, "reason")
    for event, words in _EVENTS.items():
        yield single(COUNTER, *words, counts.events.get(event, 0))
    used_s = time.process_time()
    yield single(COUNTER, "process_cpu_seconds_total", "Processor time of the peer's process.", used_s)
    text = "Memory of the peer's process, including pages that it shares with other processes."
    yield single(GAUGE, "process_resident_memory_bytes", text, _resident_bytes())
    yield single(GAUGE, "trellis_links", "Physical links that are up.", links)
    logical = {str(topic): count for topic, count in counts.logical_links.items()} if driver is not None else {}
    yield Family(GAUGE, "trellis_logical_links", "Logical links by the number of their topic.", logical, "topic")
    yield single(GAUGE, "trellis_send_queue_bytes", "Bytes waiting to be sent.", queued_bytes)


def _resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _by_kind(name: str, text: str, values: dict[int, int]) -> Family:
    names = kind_names()
    return Family(COUNTER, name, text, {names[kind]: count for kind, count in values.items()}, "kind")
