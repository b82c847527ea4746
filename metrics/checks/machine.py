"""Was the machine fast enough? Each limit watches one place where work piles up."""

from __future__ import annotations

from collections.abc import Sequence

from metrics.checks.documents import PressureRecord
from metrics.checks.evidence import FrameCounts, HostDelays, MachineLoad, Publications
from metrics.checks.rule import Judgement, Limit, Samples, allowed_beyond, at_most, count_above, each_at_most, rule
from metrics.rundata import SUSPECT

PUBLISH_LAG_P99 = Limit(20.0, "ms")
RECEIVE_P99 = Limit(10.0, "ms")
SEND_P50 = Limit(5.0, "ms")
CPU_BUSY = Limit(0.95, "ratio")
STEAL = Limit(0.10, "ratio")
BUSY_SECONDS = Limit(0.10, "ratio")
"""Share of the workload's seconds that may be above CPU_BUSY or STEAL."""

PRESSURE_SILENCE = Limit(3.0, "s")
"""How long before the judged span's end the last line of ``pressure.jsonl`` may be, which has one a virtual second."""


@rule(
    "the 99th percentile of (published - scheduled) exceeds {0}",
    SUSPECT,
    "overload",
    limits=(PUBLISH_LAG_P99,),
    grave=True,
    samples=Samples("publications", "a publication", "scheduled, published"),
)
def publish_lag(publications: Publications) -> Judgement:
    """A late publication is an event loop that does not keep up."""
    p99, largest, tested = publications.lag_ms_p99, publications.lag_ms_max, publications.with_schedule
    detail = f"publications came later than scheduled: p99 {p99:.3g} ms, latest {largest:.3g} ms"
    return at_most(PUBLISH_LAG_P99, p99, tested, detail, publications.late, allowed_beyond(tested))


@rule(
    "the 99th percentile of `d_rcv` exceeds {0}",
    SUSPECT,
    "overload",
    limits=(RECEIVE_P99,),
    grave=True,
    samples=Samples("frames", "a frame", "`tap_rx_ns`, `log_recv_ns`"),
)
def receive_delay(hosts: HostDelays, frames: FrameCounts) -> Judgement:
    """Between a packet's arrival at a host and the peer's read lies nothing but the wait for a processor.

    An idle machine shows 0.1 to 1 ms; the limit is about a tenth of a typical WAN delay.
    """
    p50, p99 = hosts.receive_ms_p50, hosts.receive_ms_p99
    detail = f"peers read a frame after its arrival: median {p50:.3g} ms, p99 {p99:.3g} ms"
    return at_most(RECEIVE_P99, p99, frames.sent, detail, hosts.late, allowed_beyond(hosts.received))


@rule("the median of `d_sndbuf` exceeds {0}", SUSPECT, "overload", limits=(SEND_P50,), grave=True)
def send_delay(hosts: HostDelays, frames: FrameCounts) -> Judgement:
    """The same on the sending side, from the peer's write to the first byte on the wire.

    Its tail belongs to TCP (a full window waits a round trip), so the median is judged.
    """
    p50, p99 = hosts.send_ms_p50, hosts.send_ms_p99
    detail = f"frames left their host after the peer's write: median {p50:.3g} ms, p99 {p99:.3g} ms"
    return at_most(SEND_P50, p50, frames.sent, detail)


@rule(
    "the processors are busy for more than {0} of the time in more than {1} of the seconds",
    SUSPECT,
    "overload",
    limits=(CPU_BUSY, BUSY_SECONDS),
)
def cpu_busy(load: MachineLoad) -> Judgement:
    """A saturated machine whose delays still happen to be within the other limits.

    The process that keeps a processor awake gets 2 to 4 % of it even then, so that saturation shows as 96 to 98 %.
    """
    return _judge_seconds(CPU_BUSY, load.cpu_busy)


@rule(
    "the hypervisor takes more than {0} of the processors' time in more than {1} of the seconds",
    SUSPECT,
    "overload",
    limits=(STEAL, BUSY_SECONDS),
)
def steal(load: MachineLoad) -> Judgement:
    """Time that the hypervisor took is invisible to every other measure."""
    return _judge_seconds(STEAL, load.steal)


def _judge_seconds(limit: Limit, seconds: Sequence[float]) -> Judgement:
    detail = f"{count_above(limit, seconds)} of {len(seconds)} seconds of the workload above {limit.value:.0%}"
    return each_at_most(limit, seconds, detail, share=BUSY_SECONDS.value)


@rule(
    "a period of a quota was used up from the workload's begin until the peers are told to end, or in a second that "
    "touches this span; or `pressure.jsonl` ends more than {0} (virtual) before the end of this span",
    SUSPECT,
    "overload",
    limits=(PRESSURE_SILENCE,),
)
def throttled(pressure: PressureRecord) -> Judgement:
    """Where a quota of processor time (a container's, say) is used up, everything that it holds for stands still.

    It does so for the rest of the period, tens of milliseconds as a rule. One such period is enough to be seen in
    delays, and no other measure tells it from a busy machine. What comes after the record's end is not known.
    """
    start_ns, end_ns = pressure.judged_ns
    lines = pressure.lines
    begun_ns = [0, *(line.at_ns for line in lines[:-1])]
    judged = [line for before, line in zip(begun_ns, lines, strict=False) if before < end_ns and line.at_ns > start_ns]
    throttled_ms = [line.throttled_us / 1000 for line in judged if line.throttled_periods]
    periods = sum(line.throttled_periods for line in judged)
    detail = (
        f"a processor quota of the run's cgroups was used up in {periods} periods ({sum(throttled_ms):.3g} ms, summed "
        f"over processors), in {len(throttled_ms)} of {len(judged)} seconds"
    )
    silent_s = (end_ns - max((line.at_ns for line in lines), default=start_ns)) / 1e9
    failed = periods
    if not lines or silent_s > PRESSURE_SILENCE.value:
        failed += 1
        detail += f"; pressure.jsonl has no line of the last {silent_s:.1f} s before the peers were told to end"
    return Judgement(len(judged), failed, max(throttled_ms, default=0.0), Limit(0, "ms"), detail)
