"""What metrics say of a node: the sums of its trace events."""

from peer.core.frames import Data, Hello
from peer.runtime.counts import Counts
from peer.trace import TraceEvent, make_frame_event

COPY = Data(1 << 32, (0,), 1, 1, b"payload")


def frame_event(event: str, frame: Data | Hello, len_bytes: int) -> TraceEvent:
    return make_frame_event(event, 1, 0, 1, "a:1-b:2", "orig", frame, 0, len_bytes)


def test_frames_and_bytes_are_counted_by_kind_and_direction() -> None:
    counts = Counts()
    counts.add([frame_event("send", Hello(0, 1), 24), frame_event("send", COPY, 40), frame_event("receive", COPY, 41)])
    counts.add([frame_event("send", COPY, 50), TraceEvent("drop", 1, 0, 1, kind=Data.kind, len_bytes=60)])
    assert (counts.sent_frames, counts.sent_bytes) == ({Hello.kind: 1, Data.kind: 2}, {Hello.kind: 24, Data.kind: 90})
    assert (counts.received_frames, counts.received_bytes) == ({Data.kind: 1}, {Data.kind: 41})
    assert counts.events == {"send": 3, "receive": 1, "drop": 1}


def test_logical_links_begin_and_end_by_topic() -> None:
    counts = Counts()
    grafts = [TraceEvent("graft", 1, 0, peer, topics=topics) for peer, topics in ((1, (3, 5)), (2, (5,)))]
    counts.add([*grafts, TraceEvent("prune", 2, 0, 1, topics=(3,), reason="left")])
    assert counts.logical_links == {3: 0, 5: 2}


def test_events_that_a_program_reports_count_from_zero() -> None:
    counts = Counts({"deliver": 0, "publish": 0})
    counts.add([TraceEvent("deliver", 1, 0)])
    assert counts.events == {"deliver": 1, "publish": 0}
