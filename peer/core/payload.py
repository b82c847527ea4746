"""The application's header, with which the payloads of a workload begin. Protocols may read it; none needs it.

    offset  size  field
         0     8  message id
         8     4  the publisher's count of its messages on the message's first topic, from 0
        12        the message id, repeated

A message with an expression has it at offset 12, so that an application can ignore messages that are not for it: two
bytes with its length, then its text in ASCII, then the message id, repeated. A shorter payload is cut off.
"""

from peer.core.identifiers import MessageId

_SEQUENCE = slice(8, 12)
_LENGTH_BYTES = 2


def make_payload(identifier: MessageId, sequence: int, size_bytes: int, expression: str = "") -> bytes:
    """Return the payload of a message of a workload.

    Args:
        identifier: the message's id.
        sequence: the publisher's count of its messages on the message's first topic, from 0.
        size_bytes: the payload's length.
        expression: the message's expression, or empty.
    """
    word = identifier.to_bytes(8, "big")
    text = len(expression).to_bytes(_LENGTH_BYTES, "big") + expression.encode("ascii") if expression else b""
    content = word + sequence.to_bytes(4, "big") + text + word * (size_bytes // 8)
    return content[:size_bytes]


def least_payload_bytes(expression_length: int) -> int:
    """Return the size in bytes of the smallest payload that contains a whole expression of this length."""
    return _SEQUENCE.stop + _LENGTH_BYTES + expression_length


def topic_sequence(payload: bytes) -> int | None:
    """Return the publisher's count on the message's first topic; None if the payload is too short."""
    return int.from_bytes(payload[_SEQUENCE], "big") if len(payload) >= _SEQUENCE.stop else None
