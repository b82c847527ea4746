"""Measures that need what only a run's tables tell: the delays of the emulated network and inside hosts."""

from __future__ import annotations

from msgspec import Struct

from metrics.measures.measure import Family, Measure, Values, quantile


class Emulation(Struct, frozen=True):
    """What a run's tables tell of the network and the hosts.

    Attributes:
        stretches: of each delivery, its delay over the one-way delay of the direct path.
        rtt_errors_ms: of the probes of the idle network, |RTT measured - asked|.
        wire_error_ms_p99: as its check took it; None = not tested.
        send_delays_ms: of each hop, the delay in the sender's host.
        receive_delays_ms: of each hop, the delay in the receiver's host.
        lateness_ms_p99: as its check took it; None = not tested.
        second_lateness_ms: of each second, the 99th percentile of the data plane's lateness.
    """

    stretches: Values
    rtt_errors_ms: Values
    wire_error_ms_p99: float | None
    send_delays_ms: Values
    receive_delays_ms: Values
    lateness_ms_p99: float | None
    second_lateness_ms: Values


EMULATION: Family[Emulation] = Family(
    "the network and the hosts",
    (
        Measure(
            "stretch_p50",
            "",
            "stretch: delay of a delivery over the one-way delay of the direct path, median",
            lambda it: quantile(it.stretches, 0.5),
        ),
        Measure(
            "rtt_error_ms_p50",
            "ms",
            "RTT error of the idle network, median",
            lambda it: quantile(it.rtt_errors_ms, 0.5),
        ),
        Measure(
            "rtt_error_ms_p99",
            "ms",
            "RTT error of the idle network, 99th percentile",
            lambda it: quantile(it.rtt_errors_ms, 0.99),
        ),
        Measure(
            "wire_error_ms_p99",
            "ms",
            "error of a hop's delay on the wire, 99th percentile",
            lambda it: it.wire_error_ms_p99,
        ),
        Measure(
            "send_delay_ms_p50",
            "ms",
            "delay of a hop in the sender's host, median",
            lambda it: quantile(it.send_delays_ms, 0.5),
        ),
        Measure(
            "receive_delay_ms_p99",
            "ms",
            "delay of a hop in the receiver's host, 99th percentile",
            lambda it: quantile(it.receive_delays_ms, 0.99),
        ),
        Measure(
            "lateness_ms_p99",
            "ms",
            "lateness of the data plane over all frames, 99th percentile",
            lambda it: it.lateness_ms_p99,
        ),
        Measure(
            "lateness_ms_p99_worst",
            "ms",
            "lateness of the data plane in the worst second, 99th percentile",
            lambda it: quantile(it.second_lateness_ms, 1.0),
        ),
    ),
)
