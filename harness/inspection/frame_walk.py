"""Finds overlay frames in the segments of one direction of a TCP connection, including segments cut by the capture.

Used by ``trellis inspect``. The tables come from ``metrics.pcap``, which reassembles the stream.
"""

from collections import Counter
from collections.abc import Iterator

from peer.core.frames import frame_type
from peer.wire import HEADER, HEADER_BYTES, MAGIC, MAX_FRAME_BYTES, VERSION


class FrameWalk:
    """A walk along a stream from frame to frame, by the lengths in their headers.

    A hole, a header that the capture cut, and bytes that are not a frame interrupt the walk. They are counted, and the
    walk continues at the next segment that begins with a header.

    Attributes:
        trouble: counts of ``holes`` in the stream, ``hidden`` headers and segments that are ``not_frames``, behind
            which frames are missing, and of ``retransmitted`` segments, which hide no frame.
    """

    def __init__(self, trouble: Counter[str]) -> None:
        self.trouble = trouble
        self._seen = -1  # sequence number after the last segment; -1 = nothing yet
        self._boundary: int | None = None  # where the next frame begins
        self._carry = b""  # from the boundary to _seen, where all of it was kept

    def segment(self, seq: int, kept: bytes, length: int) -> Iterator[tuple[bytes, int]]:
        """Yield the frames that end in a segment, or begin in it if the rest was cut.

        Args:
            seq: sequence number of the segment's first byte, modulo 2**32.
            kept: the bytes that the capture has.
            length: the segment's length in bytes.

        Yields:
            (bytes, length): the bytes of a frame that the capture has, and the frame's length.
        """
        kept, seq, length = self._advance(seq, kept, length)
        if length == 0:
            return
        buffer = self._carry + kept
        start, end, whole = seq - len(self._carry), seq + length, len(kept) == length
        self._carry = b""
        if self._boundary is None and frame_length(buffer) is not None:
            self._boundary = start
        if self._boundary is None:
            self.trouble["not_frames"] += 1
        while self._boundary is not None and self._boundary < end:
            head = buffer[self._boundary - start :]
            size = frame_length(head)
            if whole and (len(head) < HEADER_BYTES or (size is not None and len(head) < size)):
                self._carry = head
                return
            if size is None:
                self.trouble["hidden" if len(head) < HEADER_BYTES else "not_frames"] += 1
                self._boundary = None
                return
            yield head[:size], size
            self._boundary += size

    def _advance(self, seq: int, kept: bytes, length: int) -> tuple[bytes, int, int]:
        """Return the new part of a segment; sequence numbers continue beyond 2**32."""
        if self._seen < 0:
            self._seen = self._boundary = seq
        ahead = (seq - self._seen + (1 << 31)) % (1 << 32) - (1 << 31)
        if length > 0 and ahead + length <= 0:
            self.trouble["retransmitted"] += 1
            return b"", self._seen, 0
        if ahead > 0:
            self.trouble["holes"] += 1
            self._boundary, self._carry = None, b""
        old = max(0, -ahead)
        begin = self._seen + max(0, ahead)
        self._seen = begin + length - old
        return kept[old:], begin, length - old


def frame_length(head: bytes) -> int | None:
    """Return the length in a frame's header; None if the bytes do not begin with a header."""
    if len(head) < HEADER_BYTES:
        return None
    magic, version, kind, length, _, _, _, topics, _ = HEADER.unpack_from(head)
    fits = HEADER_BYTES + 4 * topics < length <= MAX_FRAME_BYTES
    return int(length) if magic == MAGIC and version == VERSION and frame_type(kind) and fits else None
