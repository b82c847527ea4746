"""Do logs, captures and tables tell the same story?"""

from metrics.checks import evidence
from metrics.checks.rule import FLOOR, Absent, Judgement, Limit, Rules, few_late, none_of
from metrics.recount import Recount
from metrics.rundir import INVALID, SUSPECT

RULES = Rules()

CHURN_MARGIN = Limit(100.0, "ms")
"""Under churn, two scheduled instants closer than this may have changed places in the run, and a publication that came
later than this with what is as close to it as it was late."""

DELAY_AGREEMENT_P99 = Limit(10.0, "ms")

SETTLE = Limit(100.0, "ms")
"""The most that may pass between the timestamp of a node's ``Bye`` and that of its link's end."""

IDLE = Limit(2.0, "s")
"""So long after both ``Hello`` a node knows a link on which it has sent nothing. Nodes that all open their links at
once wait for the processor for half a second and more between a frame's timestamp and that of what they make of it."""

BROKEN = Limit(60.0, "s")
"""After the last packet of a connection that broke, each end has noticed by then: keep-alives and TCP's time-out see to
that (``peer.runtime.link``)."""

INTRODUCED = Limit(12.0, "s")
"""So long after the handshake a connection is a link or closed: a node closes one without a ``Hello`` after 10 s."""

TOLD = Limit(2.0, "s")
"""What a node sent has reached its neighbour by then, whatever the round-trip time."""

_LISTED = 5


@RULES.add("consistency", SUSPECT, scope="deliveries")
def traces_complete(traces: evidence.Traces) -> Judgement:
    """Fails if a peer's trace is missing, has a broken line, or does not end with a ``stop`` that counts its lines.

    The rest is analysed; checks that need both ends leave these peers out.
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

    The numbers of such a run say nothing of a protocol. A mistake in its input is the usual cause.
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
    """Fails if the plan, the underlay, the overlay, the schedule or the traces of a simulated run differ from the hash
    in `manifest.json`.

    The tables would compare what happened with something that nobody asked for.
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
    """Fails if ``deliveries`` differs from the rows that subscriptions and schedule call for, which are counted again
    without Spark. Under churn the count may be off by the pairs whose node joined, left or changed its subscription
    within {0} of the publication, or within the time by which that publication was late.

    There the schedule cannot say which came first.
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
    """Fails if anywhere log_send <= tap_tx <= tap_rx <= log_recv does not hold; tolerance 0. Between machines with
    clocks of their own, an instant may be early by as much as these are unsure; ``worst`` is what exceeds that.

    There is one clock.
    """
    return none_of(order.tested, order.failed, "ms", worst=order.worst / 1e6)


@RULES.add("consistency", SUSPECT, TOLD)
def frames_arrived(frames: evidence.Outcome) -> Judgement:
    """Fails if a frame was sent and never read, unless its receiver left or crashed, or its sender crashed, about then:
    the frame was sent, or its stream still worked, or it reached the receiver's host, at most a round trip and {0}
    before that end, or it was sent at most 30 s before and the captures show that it left and never arrived; and it was
    sent at most a round trip and {0} after the end (60 s after a silent crash), to a sender's own crash at the latest;
    and no later frame of its stream was read. A cut between the two nodes, or a pause of either, excuses frames
    likewise, until 30 s after it. Such frames count neither here nor in ``frame_sets``; all others of their connections
    do, and all checks have these.

    The frame was still queued when the run ended, in a queue that did not drain in the cool-down, or lost with its
    connection.
    """
    detail = f"{frames.failed:,} of {frames.tested:,} sent frames were never read: they were still queued, or lost"
    return none_of(frames.tested, frames.failed, "frames", detail if frames.failed else "")


@RULES.add("consistency", SUSPECT)
def frames_kept(frames: evidence.Outcome, traces: evidence.Traces) -> Judgement:
    """Fails if a peer dropped a frame instead of sending it (full send queue, no link). Frames without a link do not
    count while a cut or a pause breaks the connection.

    Send queues overflow where a machine is too slow.
    """
    lost = sum(traces.dropped.values())
    detail = ", ".join(f"{count:,} {reason}" for reason, count in sorted(traces.dropped.items()))
    return none_of(frames.tested + lost, lost, "frames", detail)


@RULES.add("consistency", INVALID, scope="deliveries")
def churn_executed(traces: evidence.Traces) -> Judgement | Absent:
    """Fails if the number of joins and leaves in the traces differs from the schedule's. Not judged if a trace is
    incomplete, not applicable if neither has any.

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
    """Fails if a capture was asked for on a testbed that captures and there is none, unless the machines' rights did
    not allow it.

    Without a capture nothing is checked on the wire.
    """
    detail = "no capture file in the run directory: nothing was checked on the wire" if uncaptured else ""
    return none_of(1, int(uncaptured), "", detail, worst=0)


@RULES.add("consistency", SUSPECT)
def frame_sets(frame_sets: evidence.FrameSets) -> Judgement:
    """Fails if traces and captures do not have the same frames, at either tap: those that were sent and those that
    left, those that arrived and those that were read.

    A frame that only one of them has was lost, or is missing from a record.
    """
    detail = "; ".join(f"{count:,} {lack}" for lack, count in frame_sets.unmatched.items() if count)
    return none_of(frame_sets.tested, sum(frame_sets.unmatched.values()), "frames", detail)


@RULES.add("consistency", SUSPECT)
def stream_coverage(coverage: evidence.Outcome) -> Judgement:
    """Fails if on some connection and direction the frames in the traces leave gaps, or do not end where the captured
    byte stream ends, at either end. Of a stream that a node's end cut off (``frames_arrived``), the bytes before the
    first frame that was lost must all be there.

    Every byte on a connection belongs to a frame.
    """
    detail = f"{coverage.total:,} stream bytes, counted at both ends"
    return none_of(coverage.tested, coverage.failed, "bytes", detail, coverage.worst)


@RULES.add("consistency", SUSPECT)
def connections(connections: evidence.Matching) -> Judgement:
    """Fails if a connection with frames in the traces is not in the captures, or the other way round.

    Both see every connection.
    """
    failed = connections.only_traced + connections.only_on_wire
    detail = f"{connections.only_traced} only in traces, {connections.only_on_wire} only on the wire" if failed else ""
    return none_of(connections.tested, failed, "connections", detail)


@RULES.add("consistency", INVALID, scope="packets")
def conservation(captures: evidence.Captures) -> Judgement | Absent:
    """Fails if the packets that the data plane counted are not the records in the capture files.

    The data plane captures each packet that it reads and each that it writes.
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

    No check on the wire sees what the captures lack.
    """
    dropped = max(captures.plane_dropped, captures.dropped)
    failed = dropped + captures.truncated + captures.not_understood
    detail = f"{dropped:,} records dropped, {captures.truncated} files cut off"
    detail += f", {captures.not_understood:,} packets not understood"
    return none_of(captures.records + dropped, failed, "records", detail if failed else "")


@RULES.add("consistency", INVALID, scope="deliveries")
def delay_order(delays: evidence.Outcome) -> Judgement:
    """Fails if a delay by the traces is shorter than the delay by the captures, or negative.

    The captures see a part of the way that the traces see.
    """
    return none_of(delays.tested, delays.failed, "ms", worst=delays.worst)


@RULES.add("consistency", SUSPECT, DELAY_AGREEMENT_P99, things="deliveries", scope="deliveries")
def delay_agreement(inside: evidence.Spread) -> Judgement:
    """Fails if the 99th percentile of their difference, the time inside the first and last host, exceeds {0}.

    It is the hosts' whole share in a delivery's delay. The time from the first copy that the publisher hands over to
    the instant at which TCP lets a copy go ([below](#waits-for-tcp)) is left out: it may be another copy, which a
    neighbour asks for while a connection that is cut keeps the first. If copies may wait for other nodes (for a request
    with `notify-pull` and `plumtree`, to be admitted with implicit groups), the time from the publication on is left
    out. Deliveries that met a pause of their first or last peer, or the second after it, do not count.

    Late: a delivery; the publication or the end of these waits, and before the delivery: the time inside the first and
    the last host, whose shares are not known.
    """
    detail = f"delay by the traces less delay by the captures: {inside}"
    return few_late(DELAY_AGREEMENT_P99, inside.p99, inside.samples, detail, inside.late, inside.samples // 100)


@RULES.add("consistency", INVALID, scope="deliveries")
def possible_delays(bounds: evidence.Bounds) -> Judgement:
    """Fails if a message was delivered before packets could have brought it: a chain of packets with payload leads from
    its publisher to the node, each of which left its host after the one before had arrived there, the first one after
    the message was due to be published.

    The packets need not be understood, so the bound holds for any program. A delivery before it was not made, or came
    by another way than the emulated network. Not judged if packets are missing in the captures.
    """
    detail = f"{bounds.impossible:,} deliveries came before packets could have brought the message"
    detail += f", {bounds.unreached:,} of them without any" if bounds.unreached else ""
    return none_of(bounds.tested, bounds.impossible, "ms", detail if bounds.impossible else "", bounds.worst_ms)


@RULES.add("consistency", SUSPECT, scope="deliveries")
def delivered_bytes(bounds: evidence.Bounds) -> Judgement:
    """Fails if less payload arrived at a node's host than the messages have that it delivered. Each byte that arrived
    counts for one message, between its publication and its delivery; retransmitted bytes count, too.

    Some deliveries were not made, or the program compresses payloads.
    """
    detail = "too little payload arrived for as many deliveries" if bounds.lacking else ""
    return none_of(bounds.sized, bounds.lacking, "deliveries", detail)


@RULES.add("consistency", INVALID, scope="packets")
def overhead_identity(identity: evidence.Outcome) -> Judgement:
    """Fails if the classes of ``overhead`` do not add up to the bytes on the wire, exactly, in some second of some
    node.

    Each byte on the wire belongs to one class.
    """
    detail = f"{identity.total:,} bytes on the wire in nine classes"
    return none_of(identity.tested, identity.failed, "bytes", detail, identity.worst)


@RULES.add("consistency", SUSPECT, IDLE, SETTLE, BROKEN)
def link_agreement(links: evidence.Links) -> Judgement:
    """Fails if at some full second a node's trace and the captures do not have the same physical links. A link must be
    in the trace from the first frame that the node sends on it after its ``Hello`` ({0} after both ``Hello`` at the
    latest) until a ``Bye`` enters or leaves its host; it must not be there before the other side's ``Hello`` reached
    the host, nor {1} after a ``Bye`` was sent or read. For a node that sent and read no ``Bye``, the connection broke:
    it must be in the trace until the node's last frame on it, and be gone from it {2} after its last packet.

    Between these bounds both answers are right.
    """
    found = links.physical
    failed = found.only_on_wire + found.only_traced
    detail = f"{found.changing:,} traced ones were just beginning, ending or breaking on the wire"
    if failed:
        detail += f"; {found.only_on_wire:,} only on the wire, {found.only_traced:,} only in traces"
    return none_of(found.tested, failed, "links", detail)


@RULES.add("consistency", SUSPECT, TOLD, BROKEN, INTRODUCED, scope="packets")
def open_connections(connected: evidence.Matching) -> Judgement:
    """Fails if at some full second a node's trace has a physical link without an open connection in the captures, or
    the captures a connection without a link. A connection is open from both SYNs to the first FIN or RST. Of a
    program, a UDP flow counts likewise, from the first instant at which both sides have sent. A link may last
    {0} longer, since a FIN can arrive before what was sent earlier, and {1} after the last packet where nothing
    closed the connection. A connection that something closes must be a link from {2} after its handshake until
    {0} before its end, except at a node that crashed silently.

    These bounds are wider than those of `link_agreement`, but need no frame: they hold for any program, and the
    traces say nothing of the connections.
    """
    failed = connected.only_on_wire + connected.only_traced
    detail = f"{connected.only_on_wire:,} only on the wire, {connected.only_traced:,} only in traces" if failed else ""
    return none_of(connected.tested, failed, "links", detail)


@RULES.add("consistency", SUSPECT, TOLD)
def logical_link_frames(links: evidence.Links) -> Judgement | Absent:
    """Fails if at some full second a node's trace has a logical link that no frame on the wire began, or the frames
    begin one that is in no trace. The frames are those by which nodes agree on the topics of a link, such as their
    subscriptions, GRAFT and PRUNE. A trace may differ from them for {0} after each frame. Links with adversaries are
    left out, and a connection whose frames were not captured whole is not tested.

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
    """Fails if a logical link that carried data on the wire is in no trace. Checked for the first and the last copy
    with the same topics on a connection, between nodes that both subscribe to just one of them (the receiver since {0}
    before the copy was sent, so that the copy is not meant for an earlier subscription): the sender must have traced
    the link when it sent, or the receiver the reverse link (which it may have ended up to {0} before, when the sender
    had not heard of it).

    Only where nodes flood along topics, to interested neighbours only, or tell all neighbours their interests:
    elsewhere copies rightly travel without a logical link.
    """
    found = links.logical
    if found is None:
        return Absent("nodes of this protocol send copies also where there is no logical link")
    detail = f"{found.failed:,} logical links in use on the wire were in no trace" if found.failed else ""
    return none_of(found.tested, found.failed, "links", detail)
