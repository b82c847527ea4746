"""Measures that only a run's tables give: the delays of the emulated network and inside hosts."""

from msgspec import Struct

from metrics.measures.measure import Family, Sample, Values, largest, ratio


class EmulationFacts(Struct, frozen=True):
    """Values of the network and the hosts from a run's tables."""

    least_delays_ms: Sample  # the least delay that packets allow, for each delivery
    stretches: Sample  # the delay over the one-way delay of the direct path, for each delivery
    rtt_errors_ms: Values  # |RTT measured - asked|, for the probes of the idle network
    wire_error_ms_p99: float | None  # the value of its check; None = not tested
    send_delays_ms: Sample  # the delay in the sender's host, for each hop
    receive_delays_ms: Sample  # the delay in the receiver's host, for each hop
    lateness_ms_p99: float | None  # the value of its check; None = not tested
    second_lateness_ms: Values  # the 99th percentile of the data plane's lateness, for each second
    wire_bytes: float | None  # that hosts sent in the workload, in packets of TCP and UDP; None = nothing was captured
    deliveries: int  # that were made


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
EMULATION.add(
    "wire_bytes_per_delivery",
    "bytes",
    "bytes of TCP and UDP packets, with headers, that hosts sent in the workload, over deliveries",
    lambda it: None if it.wire_bytes is None else ratio(it.wire_bytes, it.deliveries),
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
