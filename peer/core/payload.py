"""The application's own header, with which the payloads of a workload begin; protocols may read it, none needs it.

    offset  size  field
         0     8  message id
         8     4  the publisher's count of its messages on the message's first topic, from 0
        12        the message id over and over

A shorter payload is cut off.
"""

from peer.core.identifiers import MessageId

_SEQUENCE = slice(8, 12)


def make_payload(identifier: MessageId, sequence: int, size_bytes: int) -> bytes:
    """A workload's payload."""
    word = identifier.to_bytes(8, "big")
    content = word + sequence.to_bytes(4, "big") + word * (size_bytes // 8)
    return content[:size_bytes]


def topic_sequence(payload: bytes) -> int | None:
    """The publisher's count on the message's first topic; None where the payload is too short to hold one."""
    return int.from_bytes(payload[_SEQUENCE], "big") if len(payload) >= _SEQUENCE.stop else None
