"""The application's own header, with which the payloads of a workload begin; protocols may read it, none needs it.

    offset  size  field
         0     8  message id
         8     4  the publisher's count of its messages on the message's first topic, from 0
        12        the message id over and over

A message with an expression has it at offset 12, so that an application can ignore messages that are not for it: two
bytes with its length, then its text in ASCII. The message id follows. A shorter payload is cut off.
"""

from peer.core.identifiers import MessageId

_SEQUENCE = slice(8, 12)
_LENGTH_BYTES = 2


def make_payload(identifier: MessageId, sequence: int, size_bytes: int, expression: str = "") -> bytes:
    """A workload's payload."""
    word = identifier.to_bytes(8, "big")
    text = len(expression).to_bytes(_LENGTH_BYTES, "big") + expression.encode("ascii") if expression else b""
    content = word + sequence.to_bytes(4, "big") + text + word * (size_bytes // 8)
    return content[:size_bytes]


def least_payload_bytes(expression_length: int) -> int:
    """The size of the smallest payload that has an expression of this length in whole."""
    return _SEQUENCE.stop + _LENGTH_BYTES + expression_length


def topic_sequence(payload: bytes) -> int | None:
    """The publisher's count on the message's first topic; None where the payload is too short to hold one."""
    return int.from_bytes(payload[_SEQUENCE], "big") if len(payload) >= _SEQUENCE.stop else None
