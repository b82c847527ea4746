"""The encoding of frames, without I/O.

Every frame starts with a fixed big-endian header, by which vectorised code can read captures::

    offset  size  field
         0     2  magic       0x7452 ("tR")
         2     1  version     1
         3     1  kind        peer.core.frames
         4     4  length      of the whole frame in bytes, including this header
         8     8  message id  publisher << 32 | number; 0 if there is none
        16     1  ttl         255 = unlimited; 0 if there is none
        17     1  hops        links crossed at the receiver; 0 if there is none
        18     1  topics      number of topic ids that follow
        19     1  flags       0; a receiver ignores them
        20    4n  topic ids
      20+4n       body        msgpack: the frame's remaining fields in their order, as an array

``Data`` has its message id, topics, hops and TTL in the header, and only the payload in its body, followed by
``routing`` if that is not empty. ``Subscriptions`` has its topics in the body, since a node may have more than 255.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from peer.core.encoded_sizes import count_string_bytes
from peer.core.frames import Data, Frame, frame_type

MAGIC = 0x7452
VERSION = 1
HEADER = struct.Struct(">HBBIQBBBB")
HEADER_BYTES = HEADER.size
MAX_FRAME_BYTES = 1 << 20
MTU_BYTES = 1500
"""The MTU of Ethernet."""
MSS_BYTES = 1448
"""The payload of a full packet with frames at that MTU: TCP with timestamps."""
MAX_FRAME_TOPICS = 255
MAX_MESSAGE_ID = 2**63 - 1
"""The largest message id, so that a 64-bit column of a table can contain all ids."""

_encode_body = msgspec.msgpack.Encoder().encode


class WireError(ValueError):
    """Bytes are not a frame. ``reason`` is a short stable word for traces and counters."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


def encode(frame: Frame) -> bytes:
    """Encode a frame.

    Raises:
        ValueError: a field does not fit the format (over 255 topics, a frame above ``MAX_FRAME_BYTES``).
    """
    if isinstance(frame, Data):
        topics = frame.topics
        if len(topics) > MAX_FRAME_TOPICS:
            raise ValueError(f"a data frame carries at most {MAX_FRAME_TOPICS} topics, got {len(topics)}")
        body = _encode_body((frame.payload, frame.routing) if frame.routing else (frame.payload,))
        length = HEADER_BYTES + 4 * len(topics) + len(body)
        try:
            head = HEADER.pack(
                MAGIC, VERSION, frame.kind, length, frame.message_id, frame.ttl, frame.hops, len(topics), 0
            ) + struct.pack(f">{len(topics)}I", *topics)
        except struct.error as error:
            raise ValueError(f"a data frame's header cannot hold {frame.message_id}, {topics}: {error}") from None
    else:
        body = _encode_body(msgspec.structs.astuple(frame))
        length = HEADER_BYTES + len(body)
        head = HEADER.pack(MAGIC, VERSION, frame.kind, length, 0, 0, 0, 0, 0)
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame has at most {MAX_FRAME_BYTES} bytes, got {length}")
    return head + body


def size(frame: Frame) -> int:
    """Return the length of an encoded frame in bytes.

    Raises:
        ValueError: the frame is too long, as in ``encode``.
    """
    if isinstance(frame, Data):
        routing_bytes = count_string_bytes(frame.routing) if frame.routing else 0
        return HEADER_BYTES + 4 * len(frame.topics) + 1 + count_string_bytes(frame.payload) + routing_bytes
    body_bytes = frame.count_body_bytes()
    if body_bytes is None:
        body_bytes = len(_encode_body(msgspec.structs.astuple(frame)))
    if body_bytes > MAX_FRAME_BYTES - HEADER_BYTES:
        raise ValueError(f"a frame has at most {MAX_FRAME_BYTES} bytes, got {HEADER_BYTES + body_bytes}")
    return HEADER_BYTES + body_bytes


class Decoder:
    """Divides a byte stream into frames.

    Feed it the bytes from the socket; it keeps the unfinished frame. It raises no exception, whatever the bytes are.
    Bytes that are not a frame end the stream there.

    Attributes:
        fault: why the stream ended; None = it did not.
        offset: the offset in the stream of the next frame, or of the bytes that are not a frame.
    """

    def __init__(self) -> None:
        self.fault: WireError | None = None
        self._buffer = bytearray()
        self.offset = 0

    @property
    def pending_bytes(self) -> int:
        """The number of bytes of the unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[tuple[int, int, Frame]]:
        """Return the frames that ``data`` completes. There are none after a fault.

        Returns:
            For each frame (offset in the stream in bytes, length in bytes, frame).
        """
        frames: list[tuple[int, int, Frame]] = []
        if self.fault is not None:
            return frames
        kept = self._buffer
        if kept:
            kept += data
        stream = kept or data  # most data are whole frames, of which nothing is kept
        start = 0
        available = len(stream)
        try:
            while available - start >= HEADER_BYTES:
                decoded = _decode(stream, start, available)
                if decoded is None:
                    break
                length, frame = decoded
                frames.append((self.offset + start, length, frame))
                start += length
        except WireError as fault:
            self.fault = fault
        if kept:
            del kept[:start]
        elif start < available:
            kept += data[start:]
        self.offset += start
        return frames


def _decode(stream: bytes | bytearray, start: int, end: int) -> tuple[int, Frame] | None:
    """Return the length and the frame that begins at ``start``; None = it is not whole."""
    magic, version, kind, length, message_id, ttl, hops, count, _ = HEADER.unpack_from(stream, start)
    body_at = start + HEADER_BYTES + 4 * count
    if magic != MAGIC:
        raise WireError("bad_magic", f"0x{magic:04x}")
    if version != VERSION:
        raise WireError("bad_version", str(version))
    if length > MAX_FRAME_BYTES:
        raise WireError("oversized", f"{length} bytes")
    if start + length <= body_at:
        raise WireError("bad_length", f"{length} bytes with {count} topics")
    known, decode_body = _codec(kind)
    if start + length > end:
        return None
    try:
        fields = decode_body(stream[body_at : start + length])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("bad_body", str(error)) from None
    if known is not Data:
        return length, known(*fields)
    if message_id > MAX_MESSAGE_ID:
        raise WireError("bad_message_id", str(message_id))
    topics = struct.unpack_from(f">{count}I", stream, start + HEADER_BYTES)
    assert isinstance(fields, _DataBody)
    return length, Data(message_id, topics, hops, ttl, fields.payload, fields.routing)


class _DataBody(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    payload: bytes
    routing: bytes = b""


@cache
def _codec(kind: int) -> tuple[type[Frame], Callable[[bytes | bytearray], Any]]:
    """Return the type of the frames of a kind, and what decodes their bodies.

    Raises:
        WireError: no protocol has registered the kind. It may do so later, and the cache does not keep exceptions.
    """
    known = frame_type(kind)
    if known is None:
        raise WireError("unknown_kind", str(kind))
    if known is Data:
        return known, msgspec.msgpack.Decoder(_DataBody).decode
    annotations = [field.type for field in msgspec.structs.fields(known)]
    return known, msgspec.msgpack.Decoder(tuple[tuple(annotations)]).decode  # type: ignore[misc]
