"""Does the kernel's capture at the devices of hosts agree with the data plane's own record?"""

from metrics.checks.evidence import Emulation
from metrics.checks.rule import Absent, Judgement, Limit, Rules, few_late, none_of
from metrics.recorded.host_captures import HostCaptures, Waits
from metrics.rundir import INVALID

RULES = Rules()

FEWEST = Limit(20, "packets")
"""With fewer packets, the checks are not judged."""


EXCUSED = Limit(0.01, "ratio")
"""A host is not judged if drops excuse a larger share of its packets."""


@RULES.add("certificate", INVALID, FEWEST, EXCUSED)
def host_capture_packets(host_captures: HostCaptures) -> Judgement | Absent:
    """Fails if only one of two captures has a packet of a sampled host: the data plane's capture, or the kernel's
    capture [at the host's device](#captures-in-hosts). If a capture counts dropped packets of a host, it may lack as
    many packets of this host, and these are not tested. Not judged with fewer than {0}, if a sampled host lacks a
    capture, or if drops excuse more than {1} of the packets of a host. But the check fails in any case if a capture
    lacks packets that drops do not explain.

    The data plane writes its own record. Nothing else shows a packet that it did not record, or did not handle as
    recorded.
    """
    found = host_captures
    counts = {
        "left a host and were not read by the data plane": found.total("unread"),
        "were read by the data plane and left no host": found.total("unsent"),
        "were written by the data plane and reached no host": found.total("undelivered"),
        "reached a host and were not written by the data plane": found.total("unwritten"),
    }
    hosts, pairs, tested, unmatched = len(found.counts), *map(found.total, ("pairs", "tested", "unmatched"))
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    parts += [
        f"the captures dropped {each.kernel_dropped + each.plane_dropped:,} of host {each.host}"
        for each in found.counts
        if each.kernel_dropped + each.plane_dropped
    ]
    blurred = [each.host for each in found.counts if each.excused > EXCUSED.value * (each.tested + each.excused)]
    parts += [f"drops excuse too much of host {host}" for host in blurred]
    detail = f"captures of {hosts} of {found.asked} sampled hosts have {pairs:,} packets in common"
    detail = "; ".join([detail, *parts])
    if not unmatched and (tested < FEWEST.value or hosts < found.asked or blurred):
        return Absent(detail, due=True)
    return none_of(tested, unmatched, "packets", detail, material=tested + found.total("excused"))


@RULES.add("certificate", INVALID, FEWEST, things="packets")
def host_capture_outbound(host_captures: HostCaptures, emulation: Emulation) -> Judgement | Absent:
    """Fails if, by the kernel's capture, more than 1 % (and more than one) of the packets that the sampled hosts sent
    were at the host's device more than ``verdict.lateness_p99_ms`` before or after the instant at which the data plane
    recorded that it had read them. Not judged with fewer than {0}.

    Every due time counts from that instant. ``plane_intake`` has only the data plane's own upper bound of this wait.

    Late: a packet; the kernel's timestamp, the data plane's. A packet that was read before it was sent is not
    explained.
    """
    return _judge_waits(host_captures.outbound, emulation, "the data plane read packets of sampled hosts")


@RULES.add("certificate", INVALID, FEWEST, things="packets")
def host_capture_inbound(host_captures: HostCaptures, emulation: Emulation) -> Judgement | Absent:
    """Fails if, by the kernel's capture, more than 1 % (and more than one) of the packets that the sampled hosts
    received were at the host's device more than ``verdict.lateness_p99_ms`` before or after the instant at which the
    data plane recorded that it had written them. Not judged with fewer than {0}.

    Lateness ends at that instant, so no other measure of the data plane has a delay after it.

    Late: a packet; the data plane's timestamp, the kernel's. A packet that arrived before it was written is not
    explained.
    """
    return _judge_waits(host_captures.inbound, emulation, "packets reached sampled hosts")


def _judge_waits(waits: Waits, emulation: Emulation, what: str) -> Judgement | Absent:
    """Judge that at most 1 % of the packets are late, or one packet if there are fewer than 200."""
    limit = Limit(emulation.lateness_p99_ms, "ms")
    shown = f"median {waits.p50_ms:.3g} ms, p99 {waits.p99_ms:.3g} ms, all {waits.max_ms:.3g} ms"
    detail = f"{what} after {shown}, over {waits.samples:,} packets"
    if waits.reversed:
        detail += f"; {waits.reversed:,} of the late ones came before the record says"
    if waits.samples < FEWEST.value:
        return Absent(detail, due=True)
    return few_late(limit, waits.p99_ms, waits.samples, detail, waits.late, waits.allowed)
