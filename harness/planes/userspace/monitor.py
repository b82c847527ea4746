"""The data plane's reporter: ``python -m harness.planes.userspace.monitor MEMORY_FD LOG DILATION [...]``.

It reads the forwarding process's counters from shared memory, which does not disturb that process. Once per virtual
second it writes ``dataplane.jsonl``, and the loop's gaps of that second into ``stalls.jsonl``. Given an address and a
port, it serves Prometheus metrics. It ends, with a last line, at the end of its standard input.
"""

import mmap
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, TextIO

import msgspec
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.planes.userspace import gauges, lateness
from harness.planes.userspace.gauges import GaugeSnapshot
from metrics.rundir import Stall
from metrics.rundir.files import STALLS_FILE
from peer.runtime.clock import Clock

PERIOD_S = 1.0


class Reporter:
    """Makes lines of successive snapshots."""

    def __init__(self, first: GaugeSnapshot) -> None:
        self._last = first

    def line(self, snapshot: GaugeSnapshot) -> dict[str, Any]:
        """Return the next line: counts since the start, lateness and busy ratio since the previous line."""
        last, self._last = self._last, snapshot
        counters = msgspec.to_builtins(snapshot.counters)
        del counters["in_flight"]
        passed_ns = snapshot.at_ns - last.at_ns if last.at_ns else 0
        busy_ratio = 1 - (snapshot.idle_ns - last.idle_ns) / passed_ns if passed_ns else 0.0
        recent, intake = (
            [now - before for now, before in zip(counts, earlier, strict=True)]
            for counts, earlier in (
                (snapshot.histogram, last.histogram),
                (snapshot.intake_histogram, last.intake_histogram),
            )
        )
        return {
            "at_ns": snapshot.at_ns,
            **counters,
            "records_written": snapshot.records_written,
            "records_dropped": snapshot.records_dropped,
            "lateness_ns": lateness.summarise(recent),
            "lateness_counts": lateness.counts(recent),
            "frames_late": snapshot.frames_late,
            "intake_ns": lateness.summarise(intake),
            "intake_counts": lateness.counts(intake),
            "frames_waited": snapshot.frames_waited,
            "busy_ratio": round(min(max(busy_ratio, 0.0), 1.0), 4),
        }


class MetricsCollector(Collector):
    """The counters as Prometheus metrics, read at every scrape.

    Prometheus uses real time, so the time slept is real, too: its rate is a share of a processor. Lateness is in
    virtual time, as everywhere.
    """

    def __init__(self, memory: mmap.mmap, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        snapshot = gauges.read(self._memory)
        counters = snapshot.counters
        for unit in ("frames", "bytes"):
            metric = CounterMetricFamily(f"trellis_dataplane_{unit}", f"{unit} read and written", labels=["direction"])
            metric.add_metric(["in"], getattr(counters, f"{unit}_in"))
            metric.add_metric(["out"], getattr(counters, f"{unit}_out"))
            yield metric
        drops = CounterMetricFamily("trellis_dataplane_dropped_frames", "frames dropped", labels=["cause"])
        for cause, frames in counters.drops.items():
            drops.add_metric([cause], frames)
        yield drops
        yield GaugeMetricFamily("trellis_dataplane_in_flight_frames", "frames held", value=counters.in_flight)
        idle_s = self._clock.real_s(snapshot.idle_ns / 1e9)
        yield CounterMetricFamily("trellis_dataplane_idle_seconds", "time that the loop has slept", value=idle_s)
        yield _lateness_metric(snapshot)


def _lateness_metric(snapshot: GaugeSnapshot) -> Metric:
    """Return the histogram with every fourth bound, a factor of 2 apart, and without a sum, which is unknown."""
    buckets = []
    for index in range(40, 132, 4):
        buckets.append((f"{lateness.upper_bound_ns(index) / 1e9:g}", sum(snapshot.histogram[: index + 1])))
    buckets.append(("+Inf", sum(snapshot.histogram)))
    return HistogramMetricFamily(
        "trellis_dataplane_lateness_seconds", "actual write - due time", buckets=buckets, sum_value=None
    )


def report(memory: mmap.mmap, log: TextIO, stalls: BinaryIO, clock: Clock) -> None:
    """Write one line per virtual second and one per gap until the standard input ends, then a last line.

    Args:
        memory: the memory that the forwarding process publishes to.
        log: the file for the lines.
        stalls: the file for the loop's gaps; other processes append to it, too.
        clock: the clock of the virtual seconds.
    """
    reporter = Reporter(gauges.read(memory))
    period_s = clock.real_s(PERIOD_S)
    due_s = monotonic() + period_s
    ended, told = False, dict.fromkeys(gauges.KINDS, 0)
    while not ended:
        ready, _, _ = select.select([sys.stdin], [], [], max(due_s - monotonic(), 0))
        ended = bool(ready)
        due_s += period_s
        snapshot = gauges.read(memory)
        bursts = {kind: gauges.read_bursts(memory, kind, told[kind], end) for kind, end in snapshot.bursts.items()}
        line = reporter.line(snapshot) | {"late": bursts["late"], "waits": bursts["waits"]}
        log.write(msgspec.json.encode(line).decode() + "\n")
        log.flush()
        for start_ns, end_ns, _ in bursts["gaps"]:
            stalls.write(Stall("plane", start_ns, end_ns).line())
        told = snapshot.bursts


def main() -> None:
    """Report until the end of standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    descriptor, log, dilation, *address = sys.argv[1:]
    clock = Clock(float(dilation))
    memory = mmap.mmap(int(descriptor), gauges.SIZE_BYTES, prot=mmap.PROT_READ)
    if address:
        registry = CollectorRegistry()
        registry.register(MetricsCollector(memory, clock))
        start_http_server(int(address[1]), address[0], registry)
    stalls_path = Path(log).with_name(STALLS_FILE)
    with Path(log).open("w", encoding="utf-8") as lines, stalls_path.open("ab", buffering=0) as stalls:
        report(memory, lines, stalls, clock)


if __name__ == "__main__":
    main()
