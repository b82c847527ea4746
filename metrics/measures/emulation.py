"""Measures that need what only a run's tables tell: the delays of the emulated network and inside hosts."""

from msgspec import Struct

from metrics.measures.measure import Family, Sample, Values, largest


class EmulationFacts(Struct, frozen=True):
    """What a run's tables tell of the network and the hosts."""

    least_delays_ms: Sample  # of each delivery, the least delay that packets allow
    stretches: Sample  # of each delivery, its delay over the one-way delay of the direct path
    rtt_errors_ms: Values  # of the probes of the idle network, |RTT measured - asked|
    wire_error_ms_p99: float | None  # as its check took it; None = not tested
    send_delays_ms: Sample  # of each hop, the delay in the sender's host
    receive_delays_ms: Sample  # of each hop, the delay in the receiver's host
    lateness_ms_p99: float | None  # as its check took it; None = not tested
    second_lateness_ms: Values  # of each second, the 99th percentile of the data plane's lateness


EMULATION = Family[EmulationFacts]("the network and the hosts")
EMULATION.add_statistics(
    "least_delay_ms",
    "ms",
    "least propagation delay that the captured packets allow",
    lambda it: it.least_delays_ms,
    *("p50", "p99"),
)
EMULATION.add_statistics(
    "stretch", "", "delay of a delivery / one-way delay of the direct path (stretch)", lambda it: it.stretches, "p50"
)
EMULATION.add_statistics(
    "rtt_error_ms", "ms", "RTT error of the idle network", lambda it: it.rtt_errors_ms, "p50", "p99"
)
EMULATION.add("wire_error_ms_p99", "ms", "error of a packet's delay, 99th percentile", lambda it: it.wire_error_ms_p99)
EMULATION.add_statistics(
    "send_delay_ms", "ms", "delay of a hop in the sender's host", lambda it: it.send_delays_ms, "p50"
)
EMULATION.add_statistics(
    "receive_delay_ms", "ms", "delay of a hop in the receiver's host", lambda it: it.receive_delays_ms, "p99"
)
EMULATION.add("lateness_ms_p99", "ms", "lateness of the data plane, 99th percentile", lambda it: it.lateness_ms_p99)
EMULATION.add(
    "lateness_ms_p99_worst",
    "ms",
    "lateness of the data plane in its worst second, 99th percentile",
    lambda it: largest(it.second_lateness_ms),
)
