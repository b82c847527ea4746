"""Do logs, captures and tables agree?"""

from metrics.checks import evidence
from metrics.checks.rule import FLOOR, Absent, Judgement, Limit, Rules, few_late, none_of
from metrics.recount import Recount
from metrics.rundir import INVALID, SUSPECT

RULES = Rules()

CHURN_MARGIN = Limit(100.0, "ms")
"""Under churn, two scheduled instants closer than this may come in the other order in the run. A publication that was
later than this may also come after changes that were scheduled within its lateness."""

DELAY_AGREEMENT_P99 = Limit(10.0, "ms")

SETTLE = Limit(100.0, "ms")
"""The longest time between the timestamp of a node's ``Bye`` and the timestamp of the end of its link."""

IDLE = Limit(2.0, "s")
"""A node knows a link on which it has sent nothing this long after both ``Hello``. Nodes that all open their links at
once wait half a second and more for the processor between a frame's timestamp and the timestamp of what follows from
it."""

BROKEN = Limit(60.0, "s")
"""Each end of a broken connection has noticed the break this long after the connection's last packet, by keep-alives
and TCP's time-out (``peer.runtime.tcp_connection``)."""

INTRODUCED = Limit(12.0, "s")
"""A connection is a link or closed this long after the handshake: a node closes one without a ``Hello`` after 10 s."""

TOLD = Limit(2.0, "s")
"""What a node sent has reached its neighbour after this time, for any round-trip time."""

_LISTED = 5


@RULES.add("consistency", SUSPECT, scope="deliveries")
def traces_complete(traces: evidence.Traces) -> Judgement:
    """Fails if a peer's trace is missing, has a broken line, or does not end with a ``stop`` that counts its lines.

    The other traces are analysed. Checks that need both ends leave these peers out.
    """
    found = [
        f"trace/{node}.jsonl " + ("is missing or empty" if lines is None else f"was cut off after {lines:,} lines")
        for node, lines in traces.incomplete.items()
    ]
    detail = ", ".join(found[:_LISTED]) + (f" and {len(found) - _LISTED} more" if len(found) > _LISTED else "")
    return none_of(traces.nodes, len(found), "ratio", detail, len(found) / max(traces.nodes, 1))


@RULES.add("consistency", SUSPECT, scope="deliveries")
def workload_carried(publications: evidence.Publications, deliveries: int, carried: int | None) -> Judgement | Absent:
    """Fails if no message was published, no delivery was expected, or no frame was sent between two nodes.

    The numbers of such a run say nothing about a protocol. The usual cause is a mistake in the run's input.
    """
    counts = {
        "no message was published": publications.messages,
        "no delivery was expected": deliveries,
        "no frame was sent between two nodes": carried,
    }
    absent = [text for text, count in counts.items() if count == 0]
    return none_of(len(counts), len(absent), "", ", ".join(absent))


@RULES.add("consistency", INVALID, scope="deliveries")
def documents_unchanged(documents: evidence.Documents) -> Judgement:
    """Fails if the hash of the plan, the underlay, the overlay, the schedule or the traces of a simulated run differs
    from the hash in `manifest.json`.

    The tables would compare the run with something that the experiment did not ask for.
    """
    edited = documents.edited
    detail = f"not what the run was made with: {', '.join(edited)}" if edited else ""
    return none_of(documents.hashed, len(edited), "documents", detail)


@RULES.add("consistency", INVALID, scope="deliveries")
def schedule_executed(publications: evidence.Publications) -> Judgement:
    """Fails if a scheduled message was never published.

    The run is not the experiment that was planned.
    """
    scheduled = publications.scheduled
    missing = scheduled - publications.with_schedule
    detail = f"{missing:,} of {scheduled:,} scheduled messages were never published" if missing else ""
    return none_of(scheduled, missing, "messages", detail)


@RULES.add("consistency", INVALID, CHURN_MARGIN, scope="deliveries")
def delivery_rows(
    deliveries: int, recount: Recount, publications: evidence.Publications, traces: evidence.Traces
) -> Judgement:
    """Fails if the number of rows in ``deliveries`` differs from the number that subscriptions and schedule call for,
    which is counted again without Spark. Under churn the number may differ by the number of pairs whose node joined,
    left or changed its subscription within {0} of the publication, or within the time by which that publication was
    late.

    For such pairs the schedule does not say which of the two came first.
    """
    expected, tolerance = recount
    matched = publications.messages == publications.with_schedule == publications.scheduled
    if traces.incomplete or not matched:
        expected, tolerance = publications.subscribers, 0
    wrong = abs(deliveries - expected)
    detail = f"{deliveries:,} rows for {expected:,} expected deliveries" if wrong else ""
    return Judgement(expected, wrong if wrong > tolerance else 0, wrong, Limit(tolerance, "rows"), detail)


@RULES.add("consistency", INVALID)
def causal_order(order: evidence.Outcome) -> Judgement:
    """Fails if log_send <= tap_tx <= tap_rx <= log_recv does not hold for some frame; the tolerance is 0. If machines
    have clocks of their own, an instant may be early by as much as the error of these clocks. ``worst`` is the part
    beyond that error.

    On one machine, all instants are read from one clock.
    """
    return none_of(order.tested, order.failed, "ms", worst=order.worst / 1e6)


@RULES.add("consistency", SUSPECT, TOLD)
def frames_arrived(frames: evidence.Outcome) -> Judgement:
    """Fails if a frame was sent and never read, and the end of a node does not explain it. Such an end is the leave or
    the crash of the receiver, or the crash of the sender. It explains a frame if all of this is true: (1) at most a
    round trip and {0} before the end, the frame was sent, or its stream still worked, or the frame reached the
    receiver's host; or the frame was sent at most 30 s before the end, and the captures show that it left and never
    arrived; (2) the frame was sent at most a round trip and {0} after the end (60 s after a silent crash), and not
    after the sender's own crash; (3) no later frame of its stream was read. A cut between the two nodes, or a pause of
    either node, explains frames in the same way, until 30 s after it. Explained frames count neither here nor in
    ``frame_sets``. All other frames of their connections count, in all checks.

    Such a frame was still queued when the run ended, in a queue that did not drain in the cool-down, or it was lost
    with its connection.
    """
    detail = f"{frames.failed:,} of {frames.tested:,} sent frames were never read: they were still queued, or lost"
    return none_of(frames.tested, frames.failed, "frames", detail if frames.failed else "")


@RULES.add("consistency", SUSPECT)
def frames_kept(frames: evidence.Outcome, traces: evidence.Traces) -> Judgement:
    """Fails if a peer dropped a frame instead of sending it (full send queue, no link). Frames for which there was no
    link do not count while a cut or a pause breaks the connection.

    Send queues overflow if a machine is too slow.
    """
    lost = sum(traces.dropped.values())
    detail = ", ".join(f"{count:,} {reason}" for reason, count in sorted(traces.dropped.items()))
    return none_of(frames.tested + lost, lost, "frames", detail)


@RULES.add("consistency", INVALID, scope="deliveries")
def churn_executed(traces: evidence.Traces) -> Judgement | Absent:
    """Fails if the number of joins and leaves in the traces differs from the number in the schedule. Not judged if a
    trace is incomplete. Not applicable if neither traces nor schedule have any.

    The run is not the experiment that was planned.
    """
    scheduled, traced = traces.scheduled_changes, traces.changes
    if not (scheduled or traced):
        return Absent("no node joins or leaves during the run")
    if traces.incomplete:
        return Absent(f"{len(traces.incomplete)} traces are incomplete", due=True)
    wrong = abs(scheduled - traced)
    detail = f"{traced:,} joins and leaves were traced, the schedule asks for {scheduled:,}" if wrong else ""
    return none_of(scheduled, wrong, "changes", detail)


@RULES.add("consistency", INVALID, scope="packets")
def captured(uncaptured: bool) -> Judgement:
    """Fails if the experiment asks for a capture on a testbed that captures packets, and there is none. A capture may
    be missing if the machines' rights did not allow it.

    Without a capture nothing is checked on the wire.
    """
    detail = "no capture file in the run directory: nothing was checked on the wire" if uncaptured else ""
    return none_of(1, int(uncaptured), "", detail, worst=0)


@RULES.add("consistency", SUSPECT)
def frame_sets(frame_sets: evidence.FrameSets) -> Judgement:
    """Fails if traces and captures do not have the same frames, at either tap: the frames that were sent and the frames
    that left, or the frames that arrived and the frames that were read.

    A frame that only one of the two has was lost, or a record lacks it.
    """
    detail = "; ".join(f"{count:,} {lack}" for lack, count in frame_sets.unmatched.items() if count)
    return none_of(frame_sets.tested, sum(frame_sets.unmatched.values()), "frames", detail)


@RULES.add("consistency", SUSPECT)
def stream_coverage(coverage: evidence.Outcome) -> Judgement:
    """Fails if, in some direction of some connection, the frames in the traces leave gaps, or do not end at the end of
    the captured byte stream, at either end of the connection. If the end of a node cut a stream off
    (``frames_arrived``), all bytes before the first lost frame must be there.

    Every byte on a connection belongs to a frame.
    """
    detail = f"{coverage.total:,} stream bytes, counted at both ends"
    return none_of(coverage.tested, coverage.failed, "bytes", detail, coverage.worst)


@RULES.add("consistency", SUSPECT)
def connections(connections: evidence.Matching) -> Judgement:
    """Fails if a connection with frames in the traces is not in the captures, or the other way round.

    Traces and captures both have every connection.
    """
    failed = connections.only_traced + connections.only_on_wire
    detail = f"{connections.only_traced} only in traces, {connections.only_on_wire} only on the wire" if failed else ""
    return none_of(connections.tested, failed, "connections", detail)


@RULES.add("consistency", INVALID, scope="packets")
def conservation(captures: evidence.Captures) -> Judgement | Absent:
    """Fails if the number of packets that the data plane counted differs from the number of records in the capture
    files.

    The data plane captures each packet that it reads and each packet that it writes.
    """
    counted = captures.plane_frames
    if isinstance(counted, Absent):
        return counted
    wrong = abs(counted - captures.plane_dropped - captures.records)
    detail = f"the data plane counted {counted:,} frames, the captures have {captures.records:,} records"
    return none_of(counted, wrong, "frames", detail)


@RULES.add("consistency", SUSPECT, scope="packets")
def capture_drops(captures: evidence.Captures) -> Judgement:
    """Fails if capture records were dropped, a file is cut off, or packets were not understood.

    No check on the wire sees the packets that the captures lack.
    """
    dropped = max(captures.plane_dropped, captures.dropped)
    failed = dropped + captures.truncated + captures.not_understood
    detail = f"{dropped:,} records dropped, {captures.truncated} files cut off"
    detail += f", {captures.not_understood:,} packets not understood"
    return none_of(captures.records + dropped, failed, "records", detail if failed else "")


@RULES.add("consistency", INVALID, scope="deliveries")
def delay_order(delays: evidence.Outcome) -> Judgement:
    """Fails if a delay by the traces is negative, or shorter than the same delay by the captures.

    A delay by the captures is a part of the delay by the traces.
    """
    return none_of(delays.tested, delays.failed, "ms", worst=delays.worst)


@RULES.add("consistency", SUSPECT, DELAY_AGREEMENT_P99, things="deliveries", scope="deliveries")
def delay_agreement(inside: evidence.Spread) -> Judgement:
    """Fails if the 99th percentile of the difference between the delay of a delivery by the traces and its delay by the
    captures exceeds {0}.

    This difference is the time inside the first and the last host, and so the whole share of the hosts in a delivery's
    delay. It leaves out the time from the first copy that the publisher hands over to the instant at which TCP lets a
    copy leave ([below](#waits-for-tcp)). The copy that leaves may be another one, for which a neighbour asks while a
    connection that is cut keeps the first copy. If copies may wait for other nodes (for a request with `notify-pull`
    and `plumtree`, for admission with implicit groups), the time is left out from the publication on. Deliveries during
    a pause of their first or last peer, or in the second after it, do not count.

    Late: a delivery; the publication or the end of these waits, and before the delivery: the time inside the first and
    the last host. The share of each host is not known.
    """
    detail = f"delay by the traces less delay by the captures: {inside}"
    return few_late(DELAY_AGREEMENT_P99, inside.p99, inside.samples, detail, inside.late, inside.samples // 100)


@RULES.add("consistency", INVALID, scope="deliveries")
def possible_delays(bounds: evidence.Bounds) -> Judgement:
    """Fails if a message was delivered before packets could have brought it. Packets can bring a message if a chain of
    packets with payload leads from its publisher to the node. The first packet of a chain left after the message was
    due to be published. Each other packet left its host after the packet before it had arrived there.

    The bound does not depend on the content of the packets, so it holds for any program. A delivery before the bound
    was not made, or came in another way than over the emulated network. Not judged if packets are missing in the
    captures.
    """
    detail = f"{bounds.impossible:,} deliveries came before packets could have brought the message"
    detail += f", {bounds.unreached:,} of them without any chain of packets" if bounds.unreached else ""
    return none_of(bounds.tested, bounds.impossible, "ms", detail if bounds.impossible else "", bounds.worst_ms)


@RULES.add("consistency", SUSPECT, scope="deliveries")
def delivered_bytes(bounds: evidence.Bounds) -> Judgement:
    """Fails if less payload arrived at a node's host than the messages contain that the node delivered. Each byte
    counts for one message, if it arrived between the publication and the delivery of the message. Retransmitted bytes
    count, too.

    Some deliveries were not made, or the program compresses payloads.
    """
    detail = "too little payload arrived for so many deliveries" if bounds.lacking else ""
    return none_of(bounds.sized, bounds.lacking, "deliveries", detail)


@RULES.add("consistency", INVALID, scope="packets")
def overhead_identity(identity: evidence.Outcome) -> Judgement:
    """Fails if, for some node in some second, the classes of ``overhead`` do not add up exactly to the bytes on the
    wire.

    Each byte on the wire belongs to one class.
    """
    detail = f"{identity.total:,} bytes on the wire in nine classes"
    return none_of(identity.tested, identity.failed, "bytes", detail, identity.worst)


@RULES.add("consistency", SUSPECT, IDLE, SETTLE, BROKEN)
def link_agreement(links: evidence.Links) -> Judgement:
    """Fails if at some full second a node's trace and the captures do not have the same physical links. The trace must
    have a link from the first frame that the node sends on it after its ``Hello`` ({0} after both ``Hello`` at the
    latest) until a ``Bye`` enters or leaves the node's host. The trace must not have the link before the ``Hello`` of
    the other side reached the host, nor {1} after a ``Bye`` was sent or read. If a node neither sent nor read a
    ``Bye``, the connection broke: the trace must have the link until the node's last frame on it, and must not have it
    {2} after its last packet.

    Between these bounds both answers are right.
    """
    found = links.physical
    failed = found.only_on_wire + found.only_traced
    detail = f"{found.changing:,} traced links were just beginning, ending or breaking on the wire"
    if failed:
        detail += f"; {found.only_on_wire:,} only on the wire, {found.only_traced:,} only in traces"
    return none_of(found.tested, failed, "links", detail)


@RULES.add("consistency", SUSPECT, TOLD, BROKEN, INTRODUCED, scope="packets")
def open_connections(connected: evidence.Matching) -> Judgement:
    """Fails if at some full second a node's trace has a physical link without an open connection in the captures, or
    the captures have an open connection without a physical link. A connection is open from both SYNs to the first FIN
    or RST. If the peers are another program, a UDP flow counts as a connection, from the first instant at which both
    sides have sent. A link may last {0} longer, since a FIN can arrive before data that was sent earlier. If nothing
    closed the connection, the link may last {1} after the last packet. A connection that something closes must be a
    link from {2} after its handshake until {0} before its end, except at a node that crashed silently.

    These bounds are wider than the bounds of `link_agreement`, but need no frames. So they hold for any program. The
    connections are found without the traces.
    """
    failed = connected.only_on_wire + connected.only_traced
    detail = f"{connected.only_on_wire:,} only on the wire, {connected.only_traced:,} only in traces" if failed else ""
    return none_of(connected.tested, failed, "links", detail)


@RULES.add("consistency", SUSPECT, TOLD)
def logical_link_frames(links: evidence.Links) -> Judgement | Absent:
    """Fails if at some full second a node's trace has a logical link that no frame on the wire began, or the frames
    begin a logical link that is in no trace. The frames are those with which nodes agree on the topics of a link, such
    as subscriptions, GRAFT and PRUNE. A trace may differ from the frames for {0} after each frame. Links with
    adversaries are left out. A connection is not tested if the captures lack parts of its frames.

    The frames are read from the captures alone, so the number of logical links does not depend on the traces.
    """
    found = links.frames
    if found is None:
        return Absent("no frame of this protocol says which topics a link carries")
    matching = found.matching
    if found.unread and matching.tested < FLOOR * found.material:
        cut = f"{found.unread:,} of {found.ends:,} ends of connections"
        return Absent(f"the captures do not keep all frames of {cut} whole; set capture.snaplen_bytes")
    failed = matching.only_traced + matching.only_on_wire
    detail = f"{matching.only_on_wire:,} only on the wire, {matching.only_traced:,} only in traces" if failed else ""
    return none_of(matching.tested, failed, "links", detail, material=found.material)


@RULES.add("consistency", SUSPECT, TOLD)
def logical_links(links: evidence.Links) -> Judgement | Absent:
    """Fails if a logical link that carried data on the wire is in no trace. The check takes the first and the last copy
    with the same topics on a connection, between nodes that both subscribe to exactly one of these topics. (The
    receiver must have subscribed at least {0} before the copy was sent, so that the copy is not meant for an earlier
    subscription.) Either the sender must have traced the link when it sent the copy, or the receiver must have traced
    the reverse link. The receiver may have ended the reverse link up to {0} before, if the sender had not heard of the
    end.

    The check is made if nodes flood along topics, to interested neighbours only, or if they report their interests to
    all neighbours. With other protocols, copies may travel without a logical link.
    """
    found = links.logical
    if found is None:
        return Absent("nodes of this protocol send copies also where there is no logical link")
    detail = f"{found.failed:,} logical links in use on the wire were in no trace" if found.failed else ""
    return none_of(found.tested, found.failed, "links", detail)
