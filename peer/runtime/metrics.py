"""A peer's Prometheus metrics. They are read from its own counts at each scrape, so counting costs nothing more."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from peer.core.frames import kind_names
from peer.runtime.exposition import by_label
from peer.runtime.foreign_processes import Processes
from peer.runtime.instances import Instances
from peer.runtime.line_programs import Programs
from peer.runtime.scripted import Scripted

_EVENTS = {
    "deliver": ("trellis_deliveries", "First copies on a subscribed topic, including own messages."),
    "duplicate": ("trellis_duplicates", "Copies of a message after the first."),
    "relay": ("trellis_relays", "First copies on topics that the node does not subscribe to."),
    "publish": ("trellis_publications", "Messages that the node published."),
}


def collect(slot: Instances | Programs | Processes | Scripted, is_alone: bool = True) -> Iterator[Metric]:
    """Yield the present metrics of a peer. For another program, these are only the events that it reported.

    Args:
        slot: the node's slot in its process.
        is_alone: whether the process has no other peer. What it uses is a metric of the peer only then.
    """
    if isinstance(slot, Instances):
        yield from _collect_node(slot, is_alone)
    else:
        for event, count in slot.events.items():
            if event in _EVENTS:
                yield CounterMetricFamily(*_EVENTS[event], value=count)


def _collect_node(instances: Instances, is_alone: bool) -> Iterator[Metric]:
    counts, driver = instances.counts, instances.driver
    links, queued_bytes = (driver.links.links, driver.links.queued_bytes) if driver is not None else (0, 0)
    yield _by_kind("trellis_sent_frames", "Frames handed to the socket.", counts.sent_frames)
    yield _by_kind("trellis_sent_bytes", "Bytes of frames handed to the socket.", counts.sent_bytes)
    yield _by_kind("trellis_received_frames", "Frames read.", counts.received_frames)
    yield _by_kind("trellis_received_bytes", "Bytes of frames read.", counts.received_bytes)
    yield by_label(
        CounterMetricFamily, "trellis_dropped_frames", "Frames that were not sent.", "reason", counts.dropped
    )
    text = "Connections refused or closed because of their source or of what arrived over them."
    yield by_label(CounterMetricFamily, "trellis_rejects", text, "reason", counts.rejected)
    for event, words in _EVENTS.items():
        yield CounterMetricFamily(*words, value=counts.events.get(event, 0))
    if is_alone:
        yield from _collect_process()
    yield GaugeMetricFamily("trellis_links", "Physical links that are up.", value=links)
    logical = {str(topic): count for topic, count in counts.logical_links.items()} if driver is not None else {}
    yield by_label(
        GaugeMetricFamily, "trellis_logical_links", "Logical links by the number of their topic.", "topic", logical
    )
    yield GaugeMetricFamily("trellis_send_queue_bytes", "Bytes waiting to be sent.", value=queued_bytes)


def _collect_process() -> Iterator[Metric]:
    used_s = time.process_time()
    yield CounterMetricFamily("process_cpu_seconds", "Processor time of the peer's process.", value=used_s)
    text = "Memory of the peer's process, including pages that it shares with other processes."
    yield GaugeMetricFamily("process_resident_memory_bytes", text, value=_resident_bytes())


def _resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _by_kind(name: str, text: str, values: dict[int, int]) -> Metric:
    names = kind_names()
    by_name = {names[kind]: count for kind, count in values.items()}
    return by_label(CounterMetricFamily, name, text, "kind", by_name)
