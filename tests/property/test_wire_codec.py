"""The codec: what goes in comes out, however the stream is cut, and garbage ends a stream without harm."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.inspection.dissector import TrellisFrame
from harness.inspection.frame_walk import FrameWalk
from peer.core.frames import Bye, Data, Frame, Hello, Subscriptions
from peer.wire import HEADER_BYTES, MAX_FRAME_BYTES, MAX_MESSAGE_ID, Decoder, encode

topic = st.integers(0, 2**32 - 1)
byte = st.integers(0, 255)
data_frames = st.builds(
    Data,
    message_id=st.integers(0, MAX_MESSAGE_ID),
    topics=st.lists(topic, max_size=255).map(tuple),
    hops=byte,
    ttl=byte,
    payload=st.binary(max_size=300),
    routing=st.just(b"") | st.binary(max_size=300),
)
frames = st.one_of(
    data_frames,
    st.builds(Hello, node=st.integers(0, 2**31 - 1), run=st.integers(0, 2**53)),
    st.builds(Bye, reason=st.text(max_size=40)),
    st.builds(Subscriptions, topics=st.lists(topic, max_size=300).map(tuple)),
)


def cut(content: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({min(place, len(content)) for place in places} | {0, len(content)})
    return [content[a:b] for a, b in pairwise(edges)]


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 4000), max_size=12))
def test_frames_come_out_as_they_went_in_wherever_the_stream_is_cut(sent: list[Frame], places: list[int]):
    contents = [encode(frame) for frame in sent]
    decoder = Decoder()
    out = [found for piece in cut(b"".join(contents), places) for found in decoder.feed(piece)]
    assert [frame for _, _, frame in out] == sent
    assert [length for _, length, _ in out] == [len(content) for content in contents]
    assert [off for off, _, _ in out] == [sum(map(len, contents[:i])) for i in range(len(contents))]
    assert decoder.fault is None
    assert decoder.pending_bytes == 0
    assert decoder.offset == sum(map(len, contents))


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
@example(b"\x74\x52\x01\x02" + (24).to_bytes(4, "big") + bytes(12) + b"\x91\xa2\xff\xfe", [])
@example(b"\x74\x52\x01\x03" + (24).to_bytes(4, "big") + bytes(12) + b"\x91\x91\xc3\xc3", [])
def test_garbage_never_raises(garbage: bytes, places: list[int]):
    decoder = Decoder()
    for piece in cut(garbage, places):
        decoder.feed(piece)
    assert decoder.fault is not None or decoder.pending_bytes + decoder.offset == len(garbage)
    if len(garbage) >= HEADER_BYTES and garbage[:2] != b"\x74\x52":
        assert decoder.fault is not None
        assert decoder.fault.reason == "bad_magic"


@given(st.lists(frames, min_size=1, max_size=4), st.data())
def test_a_damaged_byte_never_raises_and_spares_the_frames_before_it(sent: list[Frame], data: st.DataObject):
    content = bytearray(b"".join(map(encode, sent)))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    decoder = Decoder()
    out = [frame for _, _, frame in decoder.feed(bytes(content))]
    ends = [sum(len(encode(frame)) for frame in sent[: i + 1]) for i in range(len(sent))]
    intact = sum(end <= place for end in ends)
    assert out[:intact] == sent[:intact]
    faults = {"bad_magic", "bad_version", "oversized", "bad_length", "unknown_kind", "bad_body", "bad_message_id"}
    assert decoder.fault is None or decoder.fault.reason in faults
    assert decoder.feed(encode(sent[0])) == [] or decoder.fault is None


HELLO = encode(Hello(3, 7))


@pytest.mark.parametrize(
    ("reason", "content"),
    [
        ("bad_magic", b"GET / HTTP/1.1\r\n\r\n\r\n"),
        ("bad_version", HELLO[:2] + b"\x02" + HELLO[3:]),
        ("unknown_kind", HELLO[:3] + b"\xfe" + HELLO[4:]),
        ("oversized", HELLO[:4] + (MAX_FRAME_BYTES + 1).to_bytes(4, "big") + HELLO[8:]),
        ("bad_length", HELLO[:4] + (20).to_bytes(4, "big") + HELLO[8:]),
        ("bad_length", HELLO[:18] + b"\xff" + HELLO[19:]),
        ("bad_body", HELLO[:-1] + b"\xc1"),
        ("bad_body", encode(Bye("abc"))[:-3] + b"\xff\xfe\xfd"),
        ("bad_message_id", (lambda data: data[:8] + b"\xff" + data[9:])(encode(Data(1, (), 1, 1, b"")))),
    ],
)
def test_a_fault_has_its_reason_and_ends_the_stream(reason: str, content: bytes):
    decoder = Decoder()
    assert [frame for _, _, frame in decoder.feed(HELLO + content)] == [Hello(3, 7)]
    assert decoder.fault is not None
    assert decoder.fault.reason == reason
    assert decoder.offset == len(HELLO)
    assert decoder.feed(HELLO) == []


@pytest.mark.parametrize(
    "frame",
    [Data(1, tuple(range(256)), 1, 1, b""), Data(1, (), 1, 1, bytes(MAX_FRAME_BYTES)), Data(1, (), 256, 1, b"")],
)
def test_what_does_not_fit_is_refused_by_the_sender(frame: Data):
    with pytest.raises(ValueError):
        encode(frame)


@given(frames)
def test_scapy_reads_what_the_codec_writes(frame: Frame):
    content = encode(frame)
    seen = TrellisFrame(content)
    assert (seen.magic, seen.version, seen.kind, seen.length, seen.flags) == (0x7452, 1, frame.kind, len(content), 0)
    if isinstance(frame, Data):
        assert (seen.message_id, tuple(seen.topics)) == (frame.message_id, frame.topics)
        assert (seen.hops, seen.ttl) == (frame.hops, frame.ttl)
        assert seen.fields_of_body() == [frame.payload, *filter(None, [frame.routing])]
    else:
        assert (seen.message_id, seen.topics, seen.hops, seen.ttl) == (0, [], 0, 0)
        assert seen.fields_of_body() == [list(x) if isinstance(x, tuple) else x for x in msgspec.structs.astuple(frame)]
    assert bytes(seen) == content


@given(data_frames)
def test_the_codec_reads_what_scapy_writes(frame: Data):
    body = msgspec.msgpack.encode([frame.payload, *filter(None, [frame.routing])])
    built = TrellisFrame(
        length=HEADER_BYTES + 4 * len(frame.topics) + len(body),
        message_id=frame.message_id,
        ttl=frame.ttl,
        hops=frame.hops,
        topics=list(frame.topics),
        body=body,
    )
    assert [found for _, _, found in Decoder().feed(bytes(built))] == [frame]


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 4000), max_size=12), st.integers(0, 2**32 - 1))
def test_a_walk_over_whole_segments_sees_every_frame(sent: list[Frame], places: list[int], isn: int):
    contents = [encode(frame) for frame in sent]
    trouble: Counter[str] = Counter()
    walk, seq, seen = FrameWalk(trouble), isn, []
    for piece in cut(b"".join(contents), places):
        seen += walk.segment(seq, piece, len(piece))
        list(walk.segment(seq, piece, len(piece)))  # a retransmission changes nothing
        seq = (seq + len(piece)) % 2**32
    assert seen == [(content, len(content)) for content in contents]
    assert set(trouble) <= {"retransmitted"}


@given(st.lists(data_frames, max_size=8), st.integers(HEADER_BYTES, 200))
def test_a_walk_over_cut_segments_sees_every_header_that_was_kept(sent: list[Data], snaplen: int):
    trouble: Counter[str] = Counter()
    walk, seq, seen = FrameWalk(trouble), 5, []
    for content in map(encode, sent):
        seen += walk.segment(seq, content[:snaplen], len(content))
        seq += len(content)
    assert seen == [(content[:snaplen], len(content)) for content in map(encode, sent)]
    assert not trouble


@given(st.lists(data_frames, min_size=3, max_size=8), st.data())
def test_a_walk_finds_its_way_back_after_a_hole(sent: list[Data], data: st.DataObject):
    lost = data.draw(st.integers(1, len(sent) - 2))
    trouble: Counter[str] = Counter()
    walk, seq, seen = FrameWalk(trouble), 5, []
    for number, content in enumerate(map(encode, sent)):
        if number != lost:
            seen += walk.segment(seq, content, len(content))
        seq += len(content)
    assert [content for content, _ in seen] == [encode(frame) for number, frame in enumerate(sent) if number != lost]
    assert trouble == {"holes": 1}


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=60), st.integers(0, 40)), max_size=10))
def test_a_walk_over_garbage_never_raises(segments: list[tuple[int, bytes, int]]):
    walk = FrameWalk(Counter())
    for seq, kept, more in segments:
        list(walk.segment(seq, kept, len(kept) + more))
