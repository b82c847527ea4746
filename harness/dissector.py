"""The wire format as a Scapy layer: an independent reader of what ``peer.wire`` writes.

The header is declared here once more, field by field, on purpose: tests hold the two against each other. Only the
kinds' names come from the peer.
"""

from __future__ import annotations

from typing import Any

import msgspec
from scapy.fields import (
    ByteEnumField,
    ByteField,
    FieldLenField,
    FieldListField,
    IntField,
    LongField,
    StrLenField,
    XShortField,
)
from scapy.layers.inet import TCP
from scapy.packet import Packet, bind_layers

from harness.inventory import PEER_PORT
from peer.core.frames import kind_names

MAGIC = 0x7452
HEADER_BYTES = 20


class TrellisFrame(Packet):
    """One overlay frame. What follows it in the same segment is its payload: the next frame, if whole enough."""

    name = "Trellis"
    fields_desc = [  # noqa: RUF012 - Scapy's own way
        XShortField("magic", MAGIC),
        ByteField("version", 1),
        ByteEnumField("kind", 16, kind_names()),
        IntField("length", HEADER_BYTES),
        LongField("message_id", 0),
        ByteField("ttl", 0),
        ByteField("hops", 0),
        FieldLenField("count", None, count_of="topics", fmt="B"),
        ByteField("flags", 0),
        FieldListField("topics", [], IntField("", 0), count_from=lambda frame: frame.count),
        StrLenField("body", b"", length_from=lambda frame: max(0, frame.length - HEADER_BYTES - 4 * frame.count)),
    ]

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Another frame, where the bytes begin like one."""
        if payload[:2] == MAGIC.to_bytes(2, "big") and len(payload) >= HEADER_BYTES:
            return TrellisFrame
        return super().guess_payload_class(payload)

    def fields_of_body(self) -> list[Any] | None:
        """The body's values in order; None when it was cut off or is not msgpack."""
        try:
            decoded = msgspec.msgpack.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return decoded if isinstance(decoded, list) else None


bind_layers(TCP, TrellisFrame, sport=PEER_PORT)
bind_layers(TCP, TrellisFrame, dport=PEER_PORT)
