"""A peer's Prometheus metrics. They are read from its own counts at each scrape, so counting costs nothing more."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from peer.core.frames import kind_names
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


def make_registry(slot: Instances | Programs | Processes | Scripted) -> CollectorRegistry:
    """Return a separate registry for the peer's metrics. For another program, it has only the reported events."""
    registry = CollectorRegistry()
    registry.register(_PeerCollector(slot) if isinstance(slot, Instances) else _ProgramCollector(slot))
    return registry


class _ProgramCollector(Collector):
    def __init__(self, programs: Programs | Processes | Scripted) -> None:
        self._programs = programs

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics of the events that the program reported."""
        for event, count in dict(self._programs.events).items():
            if event in _EVENTS:
                yield CounterMetricFamily(*_EVENTS[event], value=count)


class _PeerCollector(Collector):
    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics. Another thread calls this, so it copies dicts before it iterates over them."""
        counts, driver = self._instances.counts, self._instances.driver
        links, queued_bytes = (driver.links.links, driver.links.queued_bytes) if driver is not None else (0, 0)
        yield _by_kind("trellis_sent_frames", "Frames handed to the socket.", counts.sent_frames)
        yield _by_kind("trellis_sent_bytes", "Bytes of frames handed to the socket.", counts.sent_bytes)
        yield _by_kind("trellis_received_frames", "Frames read.", counts.received_frames)
        yield _by_kind("trellis_received_bytes", "Bytes of frames read.", counts.received_bytes)
        yield _by_label("trellis_dropped_frames", "Frames that were not sent.", "reason", dict(counts.dropped))
        text = "Connections refused or closed because of their source or of what arrived over them."
        yield _by_label("trellis_rejects", text, "reason", dict(counts.rejected))
        for event, (name, text) in _EVENTS.items():
            yield CounterMetricFamily(name, text, value=self._instances.events.get(event, 0))
        used_s = time.process_time()
        yield CounterMetricFamily("process_cpu_seconds", "Processor time of the peer's process.", value=used_s)
        text = "Memory of the peer's process, including pages that it shares with other processes."
        yield GaugeMetricFamily("process_resident_memory_bytes", text, value=_resident_bytes())
        yield GaugeMetricFamily("trellis_links", "Physical links that are up.", value=links)
        logical = dict(driver.logical_links) if driver is not None else {}
        yield _logical_links({str(topic): count for topic, count in logical.items()})
        yield GaugeMetricFamily("trellis_send_queue_bytes", "Bytes waiting to be sent.", value=queued_bytes)


def _logical_links(counts: dict[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "trellis_logical_links", "Logical links by the number of their topic.", labels=("topic",)
    )
    for topic, count in counts.items():
        family.add_metric((topic,), count)
    return family


def _resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _by_kind(name: str, text: str, values: dict[int, int]) -> CounterMetricFamily:
    names = kind_names()
    return _by_label(name, text, "kind", {names[kind]: count for kind, count in dict(values).items()})


def _by_label(name: str, text: str, label: str, values: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=(label,))
    for value, count in values.items():
        family.add_metric((value,), count)
    return family
