"""The counts in shared memory and what the reporter makes of them."""

import mmap

from prometheus_client import CollectorRegistry, generate_latest

from harness.planes.plane import DROP_CAUSES, Counters
from harness.planes.userspace import gauges
from harness.planes.userspace.gauges import GaugeSnapshot
from harness.planes.userspace.lateness import BUCKETS, bucket
from harness.planes.userspace.monitor import MetricsCollector, Reporter
from peer.runtime.clock import UNDILATED, Clock


def snapshot(
    at_ns: int, idle_ns: int, frames: int, late: dict[int, int], waits: dict[int, int] | None = None
) -> GaugeSnapshot:
    histogram, intake = [0] * BUCKETS, [0] * BUCKETS
    for counts, found in ((histogram, late), (intake, waits or {})):
        for late_ns, count in found.items():
            counts[bucket(late_ns)] += count
    bursts = {kind: place for place, kind in enumerate(gauges.KINDS, 20)}
    counters = Counters(frames, frames - 1, frames * 100, 0, dict.fromkeys(DROP_CAUSES, 0) | {"loss": 1}, 0)
    return GaugeSnapshot(at_ns, idle_ns, counters, 7, 8, 9, 10, 11, 12, bursts, tuple(histogram), tuple(intake))


def test_a_snapshot_survives_shared_memory() -> None:
    memory = mmap.mmap(-1, gauges.SIZE_BYTES)
    for frames in (5, 6):
        gauges.publish(memory, snapshot(1, 2, frames, {1000: 3}))
        assert gauges.read(memory) == snapshot(1, 2, frames, {1000: 3})


def test_bursts_of_each_kind_are_kept_until_their_ring_is_full() -> None:
    memory = mmap.mmap(-1, gauges.SIZE_BYTES)
    gauges.publish(memory, snapshot(1, 2, 5, {}))
    count = gauges.KEPT + 2
    for ordinal in range(count):
        for base, kind in enumerate(gauges.KINDS):
            gauges.publish_burst(memory, kind, ordinal, (base, ordinal, ordinal + 7))
    for base, kind in enumerate(gauges.KINDS):
        assert gauges.read_bursts(memory, kind, 5, 7) == [(base, 5, 12), (base, 6, 13)]
        assert gauges.read_bursts(memory, kind, 0, count) == [(base, k, k + 7) for k in range(2, count)]
    assert gauges.read(memory) == snapshot(1, 2, 5, {})


def test_nothing_published_reads_as_zero() -> None:
    assert gauges.read(mmap.mmap(-1, gauges.SIZE_BYTES)).counters.frames_in == 0


def test_a_line_counts_from_the_beginning_and_measures_since_the_last() -> None:
    reporter = Reporter(snapshot(10**9, 10**9, 100, {1_000_000: 50}, {4_000: 2}))
    late, waits = {1_000_000: 50, 10_000: 80}, {4_000: 2, 100: 5}
    line = reporter.line(snapshot(2 * 10**9, 10**9 + 250_000_000, 180, late, waits))
    assert (line["frames_in"], line["drops"]["loss"], line["records_dropped"]) == (180, 1, 8)
    assert line["busy_ratio"] == 0.75
    assert 10_000 <= line["lateness_ns"]["max"] < 12_000
    assert line["lateness_counts"] == [(line["lateness_ns"]["max"], 80)]
    assert line["intake_counts"] == [(line["intake_ns"]["max"], 5)]
    assert 100 <= line["intake_ns"]["p99"] < 120
    assert (line["frames_late"], line["frames_waited"]) == (10, 12)


def test_a_loop_that_publishes_nothing_has_no_busy_ratio() -> None:
    still = snapshot(10**9, 0, 1, {})
    assert Reporter(still).line(still)["busy_ratio"] == 0.0


def test_time_slept_is_real_whatever_the_dilation() -> None:
    memory = mmap.mmap(-1, gauges.SIZE_BYTES)
    gauges.publish(memory, snapshot(1, 2_000_000_000, 5, {}))
    registry = CollectorRegistry()
    registry.register(MetricsCollector(memory, Clock(3)))
    assert "trellis_dataplane_idle_seconds_total 6.0" in generate_latest(registry).decode()


def test_serves_prometheus_metrics() -> None:
    memory = mmap.mmap(-1, gauges.SIZE_BYTES)
    gauges.publish(memory, snapshot(1, 2_000_000_000, 5, {500_000: 3, 100: 2}))
    registry = CollectorRegistry()
    registry.register(MetricsCollector(memory, UNDILATED))
    text = generate_latest(registry).decode()
    assert 'trellis_dataplane_frames_total{direction="in"} 5.0' in text
    assert 'trellis_dataplane_dropped_frames_total{cause="loss"} 1.0' in text
    assert "trellis_dataplane_idle_seconds_total 2.0" in text
    assert 'trellis_dataplane_lateness_seconds_bucket{le="+Inf"} 5.0' in text
    assert 'trellis_dataplane_lateness_seconds_bucket{le="0.000131072"} 2.0' in text
