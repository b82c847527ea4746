"""The kernel plane's reporter: ``python -m harness.planes.kernel.monitor LOG DILATION HOSTS [ADDRESS PORT]``.

Once per virtual second it writes the counters of the bridge's ports into ``dataplane.jsonl``. The leaves' counters are
not in these lines: reading thousands of them each second would disturb the plane. Given an address and a port, it
serves Prometheus metrics. It ends, with a last line, at the end of its standard input.
"""

import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

import msgspec
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.planes.kernel.counting import DEVICES, count_frames, read_devices
from harness.planes.plane import Counters
from peer.runtime.clock import Clock

PERIOD_S = 1.0


def read(hosts: int) -> Counters:
    """Return the counters of the bridge's ports."""
    return count_frames(read_devices(DEVICES.read_text(encoding="utf-8")), hosts)


def line(counters: Counters, at_ns: int) -> dict[str, Any]:
    """Return a line of ``dataplane.jsonl``. It has no lateness: the kernel does not say when it hands frames over."""
    counted = msgspec.to_builtins(counters)
    del counted["in_flight"]
    return {"at_ns": at_ns, **counted}


class MetricsCollector(Collector):
    """The counters as Prometheus metrics, read at every scrape."""

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts

    def collect(self) -> Iterator[Metric]:
        counters = read(self._hosts)
        for unit in ("frames", "bytes"):
            metric = CounterMetricFamily(f"trellis_dataplane_{unit}", f"{unit} read and written", labels=["direction"])
            for direction in ("in", "out"):
                metric.add_metric([direction], getattr(counters, f"{unit}_{direction}"))
            yield metric


def report(log: TextIO, clock: Clock, hosts: int) -> None:
    """Write one line per virtual second until the standard input ends, then a last line.

    Args:
        log: the file for the lines.
        clock: the clock of the virtual seconds.
        hosts: their number.
    """
    period_s = clock.real_s(PERIOD_S)
    due_s = monotonic() + period_s
    ended = False
    while not ended:
        ended = bool(select.select([sys.stdin], [], [], max(due_s - monotonic(), 0))[0])
        due_s += period_s
        log.write(msgspec.json.encode(line(read(hosts), clock.now_ns())).decode() + "\n")
        log.flush()


def main() -> None:
    """Report until the end of standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the running stage handles Ctrl-C
    log, dilation, hosts, *address = sys.argv[1:]
    if address:
        registry = CollectorRegistry()
        registry.register(MetricsCollector(int(hosts)))
        start_http_server(int(address[1]), address[0], registry)
    with Path(log).open("w", encoding="utf-8") as lines:
        report(lines, Clock(float(dilation)), int(hosts))


if __name__ == "__main__":
    main()
