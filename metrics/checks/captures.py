"""Do the captures have all packets, and the same frames, bytes and connections as the traces?"""

from __future__ import annotations

from metrics.checks.documents import CaptureState
from metrics.checks.evidence import ByteIdentity, CaptureCounts, ConnectionCounts, FrameSets, StreamCoverage
from metrics.checks.rule import Judgement, none_of, rule
from metrics.rundata import INVALID, SUSPECT


@rule("a capture was asked for on the emulated testbed and there is none", INVALID, "consistency")
def captured(capture: CaptureState) -> Judgement | None:
    """Without one, nothing is checked on the wire. Where there is one, the table `checks` does not have this check."""
    if capture.found:
        return None
    detail = "no capture file in the run directory: nothing was checked on the wire"
    return none_of(1, int(capture.wanted), "", detail, worst=0)


@rule("traces and captures do not have the same frames, at either tap", SUSPECT, "consistency")
def frame_sets(frame_sets: FrameSets) -> Judgement:
    """A frame that only one of them has was lost, or is missing from a record."""
    parts = {
        "sent by a trace but not on the wire": frame_sets.sent_unseen,
        "read by a trace but not on the wire": frame_sets.read_unseen,
        "on the wire but sent by no trace": frame_sets.seen_unsent,
        "read but never sent": frame_sets.read_unsent,
    }
    detail = "; ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    return none_of(frame_sets.tested, sum(parts.values()), "frames", detail)


@rule(
    "on some connection and direction the frames in the traces leave gaps, or do not end where the captured byte "
    "stream ends, at either end",
    SUSPECT,
    "consistency",
)
def stream_coverage(coverage: StreamCoverage) -> Judgement:
    """Every byte on a connection belongs to a frame."""
    detail = f"{coverage.covered_bytes:,} stream bytes, counted at both ends"
    return none_of(coverage.tested, coverage.failed, "bytes", detail, coverage.worst_bytes)


@rule("a connection with frames in the traces is not in the captures, or the other way round", SUSPECT, "consistency")
def connections(connections: ConnectionCounts) -> Judgement:
    """Traces and captures tell of the same connections."""
    only_traced, only_on_wire = connections.only_traced, connections.only_on_wire
    failed = only_traced + only_on_wire
    detail = f"{only_traced} only in traces, {only_on_wire} only on the wire" if failed else ""
    return none_of(connections.connections, failed, "connections", detail)


@rule("the packets that the data plane counted are not the records in the capture files", INVALID, "consistency")
def conservation(captures: CaptureCounts) -> Judgement:
    """The data plane captures each packet that it reads and each that it writes."""
    counted = captures.plane_frames
    if counted is None:
        return none_of(0, 0, "frames", "the manifest has no count of the data plane's frames")
    wrong = abs(counted - captures.plane_dropped - captures.records)
    detail = f"the data plane counted {counted:,} frames, the captures have {captures.records:,} records"
    return none_of(counted, wrong, "frames", detail)


@rule("capture records were dropped, a file is cut off, or packets were not understood", SUSPECT, "consistency")
def capture_drops(captures: CaptureCounts) -> Judgement:
    """What the captures lack, no check on the wire can see."""
    dropped = max(captures.plane_dropped, captures.dropped)
    failed = dropped + captures.truncated + captures.not_understood
    detail = f"{dropped:,} records dropped, {captures.truncated} files cut off"
    detail += f", {captures.not_understood:,} packets not understood"
    return none_of(captures.records + dropped, failed, "records", detail if failed else "")


@rule(
    "the classes of `overhead` do not add up to the bytes on the wire, exactly, in some second of some node",
    INVALID,
    "consistency",
)
def overhead_identity(identity: ByteIdentity) -> Judgement:
    """Each byte on the wire belongs to one class."""
    detail = f"{identity.wire_bytes:,} bytes on the wire in eight classes"
    return none_of(identity.tested, identity.failed, "bytes", detail, identity.worst_bytes)
