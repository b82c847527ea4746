"""Was the machine fast enough? Each limit watches one place where work can accumulate."""

from collections.abc import Sequence

from metrics.checks.evidence import Clocks, Emulation, Spread
from metrics.checks.rule import Judgement, Limit, Rules, at_most, few_late, none_of, share_at_most
from metrics.rundir import SUSPECT

RULES = Rules()

CLOCK_ERROR = Limit(1.0, "ms")
RECEIVE_P99 = Limit(10.0, "ms")
SEND_P50 = Limit(5.0, "ms")
CPU_BUSY = Limit(0.95, "ratio")
"""No higher, because the process that keeps processors awake gets 2 to 4 % even of a saturated processor."""

STEAL = Limit(0.10, "ratio")
BUSY_SECONDS = Limit(0.10, "ratio")
"""Share of the workload's seconds that may be above CPU_BUSY or STEAL."""

PRESSURE_SILENCE = Limit(3.0, "s")
"""How long the end of ``pressure.jsonl`` may be before the end of the judged span. It has one line per virtual
second."""


@RULES.add("overload", SUSPECT, PRESSURE_SILENCE)
def throttled(emulation: Emulation) -> Judgement:
    """Fails if a quota of processor time was used up in a period between the begin of the workload and the command to
    the peers to end, or in a second that touches this span. Also fails if ``pressure.jsonl`` ends more than {0}
    (virtual) before the end of this span.

    If a quota of processor time (for example of a container) is used up, all processes under the quota stand still for
    the rest of the period, usually for tens of milliseconds. One such period shows in delays, and no other check
    distinguishes it from a busy machine. Nothing is known about the time after the end of the record.
    """
    (start_ns, end_ns), lines = emulation.judged_ns, emulation.pressure
    begun_ns = [0, *(line.at_ns for line in lines[:-1])]
    judged = [line for before, line in zip(begun_ns, lines, strict=False) if before < end_ns and line.at_ns > start_ns]
    throttled_ms = [line.throttled_us / 1000 for line in judged if line.throttled_periods]
    periods = sum(line.throttled_periods for line in judged)
    detail = (
        f"a processor quota of the run's cgroups was used up in {periods} periods ({sum(throttled_ms):.3g} ms, summed "
        f"over processors), in {len(throttled_ms)} of {len(judged)} seconds"
    )
    silent_s = (end_ns - max((line.at_ns for line in lines), default=start_ns)) / 1e9
    is_cut_off = not lines or silent_s > PRESSURE_SILENCE.value
    if is_cut_off:
        detail += f"; pressure.jsonl has no line of the last {silent_s:.1f} s before the peers were told to end"
    return none_of(len(judged), periods + is_cut_off, "ms", detail, max(throttled_ms, default=0.0))


@RULES.add("certificate", SUSPECT, CLOCK_ERROR, scope="deliveries")
def clocks(clocks: Clocks) -> Judgement:
    """Fails if, on the `remote` testbed, frames between two machines took less time than the uncertainty of the
    machines' clocks, and either the round trips between the machines were not measured or the uncertainty exceeds {0}.
    ``worst`` is the largest uncertainty: any delay between machines may be wrong by as much
    ([remote-testbed.md](remote-testbed.md)).

    Such delays are below the resolution. If round trips were measured, the sum of the delays there and back is known,
    and only its division into the two delays is uncertain. For machines that are near each other this is tolerable, but
    an uncertainty of more than {0} is not.
    """
    worst_ms, unresolved = clocks.error_ns / 1e6, clocks.unresolved
    detail = f"delays between machines, and latencies, are known to within {worst_ms:.3g} ms by their clocks"
    if unresolved:
        detail += f"; {unresolved:,} of {clocks.tested:,} frames between machines took no longer than that"
    is_resolved = clocks.has_round_trips and worst_ms <= CLOCK_ERROR.value
    return none_of(clocks.tested, 0 if is_resolved else unresolved, "ms", detail, worst_ms)


@RULES.add("overload", SUSPECT, RECEIVE_P99, grave=True, things="frames")
def receive_delay(receive: Spread) -> Judgement:
    """Fails if ``d_rcv`` of more than 1 % of the frames exceeds {0}.

    Between the arrival of a packet at a host and the peer's read, there is only the wait for a processor. An idle
    machine shows 0.1 to 1 ms; {0} is about a tenth of a typical WAN delay. Frames during a pause of the peer, or in the
    second after it, count neither here nor in ``send_delay`` and the checks of single nodes.

    Late: a frame; ``tap_rx_ns``, ``log_recv_ns``.
    """
    detail = f"peers read a frame after its arrival: {receive}"
    return few_late(RECEIVE_P99, receive.p99, receive.samples, detail, receive.late, receive.samples // 100)


@RULES.add("overload", SUSPECT, SEND_P50, grave=True)
def send_delay(send: Spread) -> Judgement:
    """Fails if the median of ``d_sndbuf`` exceeds {0}.

    As ``receive_delay``, for the sending side. The tail is due to TCP (a full window waits for a round trip), so the
    median is judged.
    """
    return at_most(SEND_P50, send.p50, send.samples, f"frames left their host after the peer's write: {send}")


@RULES.add("overload", SUSPECT, CPU_BUSY, BUSY_SECONDS)
def cpu_busy(busy: tuple[float, ...]) -> Judgement:
    """Fails if the processors are busy for more than {0} of the time in more than {1} of the seconds.

    This check finds a saturated machine whose delays happen to be within the limits above. The process that keeps a
    processor awake gets 2 to 4 % even of a saturated processor, so saturation shows as 96 to 98 %.
    """
    return _judge_seconds(CPU_BUSY, busy)


@RULES.add("overload", SUSPECT, STEAL, BUSY_SECONDS)
def steal(steal: tuple[float, ...]) -> Judgement:
    """Fails if the hypervisor takes more than {0} of the processors' time in more than {1} of the seconds.

    No other measure shows time that the hypervisor took.
    """
    return _judge_seconds(STEAL, steal)


def _judge_seconds(limit: Limit, seconds: Sequence[float]) -> Judgement:
    detail = f"{{above}} of {len(seconds)} seconds of the workload above {limit.value:.0%}"
    return share_at_most(limit, seconds, BUSY_SECONDS.value, detail)
