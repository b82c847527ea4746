"""Does the kernel, at the hosts' devices, see what the data plane says it does?"""

from metrics.checks.evidence import Emulation
from metrics.checks.rule import Absent, Judgement, Limit, Rules, few_late, none_of
from metrics.host_captures import HostCaptures, Waits
from metrics.rundir import INVALID

RULES = Rules()

FEWEST = Limit(20, "packets")
"""With fewer, the checks are not judged."""


EXCUSED = Limit(0.01, "ratio")
"""A host of whose packets drops excuse a larger share is not judged."""


@RULES.add("certificate", INVALID, FEWEST, EXCUSED)
def host_capture_packets(host_captures: HostCaptures) -> Judgement | Absent:
    """Fails if a packet of a sampled host is in only one of two captures: the data plane's, and the kernel's
    [at the host's device](#captures-in-hosts). Where a capture counts packets of a host that it dropped, as many of
    this host may be missing in it, and are not tested. Not judged with fewer than {0}, where a sampled host lacks a
    capture, or where drops excuse more than {1} of the packets of a host, unless a packet more is missing somewhere.

    The data plane writes its own record: what it never recorded, or did not do as recorded, shows nowhere else.
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
    """Fails if, of the packets that the sampled hosts sent, more than 1 % (and more than one) were at the host's
    device, by the kernel's capture, more than ``verdict.lateness_p99_ms`` before or after the instant at which the
    data plane says that it has read them. Not judged with fewer than {0}.

    Every due time counts from that instant. ``plane_intake`` has only an upper bound of this wait, by the data plane.

    Late: a packet; the kernel's timestamp, the data plane's. A packet that was read before it was sent is not
    explained.
    """
    return _judge_waits(host_captures.outbound, emulation, "the data plane read packets of sampled hosts")


@RULES.add("certificate", INVALID, FEWEST, things="packets")
def host_capture_inbound(host_captures: HostCaptures, emulation: Emulation) -> Judgement | Absent:
    """Fails if, of the packets that the sampled hosts received, more than 1 % (and more than one) were at the host's
    device, by the kernel's capture, more than ``verdict.lateness_p99_ms`` before or after the instant at which the
    data plane says that it has written them. Not judged with fewer than {0}.

    Lateness ends at that instant, and no delay after it is in any other measure of the data plane.

    Late: a packet; the data plane's timestamp, the kernel's. A packet that arrived before it was written is not
    explained.
    """
    return _judge_waits(host_captures.inbound, emulation, "packets reached sampled hosts")


def _judge_waits(waits: Waits, emulation: Emulation, what: str) -> Judgement | Absent:
    """Judge that at most 1 % of packets are late, one of fewer than 200."""
    limit = Limit(emulation.lateness_p99_ms, "ms")
    shown = f"median {waits.p50_ms:.3g} ms, p99 {waits.p99_ms:.3g} ms, all {waits.max_ms:.3g} ms"
    detail = f"{what} after {shown}, over {waits.samples:,} packets"
    if waits.reversed:
        detail += f"; {waits.reversed:,} of the late ones came before the record says"
    if waits.samples < FEWEST.value:
        return Absent(detail, due=True)
    return few_late(limit, waits.p99_ms, waits.samples, detail, waits.late, waits.allowed)
