"""The wire format as a Scapy layer: an independent reader of what ``peer.wire`` writes.

The header is declared here a second time on purpose: tests compare the two. Only the names of the kinds come from the
peer.
"""

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

from harness.experiment.inventory import PEER_PORT
from peer.core.frames import kind_names

MAGIC = 0x7452
HEADER_BYTES = 20


class TrellisFrame(Packet):
    """One overlay frame. Its payload is the next frame in the same segment, if the header of that frame is whole."""

    name = "Trellis"
    fields_desc = [  # noqa: RUF012 - required by Scapy
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
        """Return the class of the next frame if the bytes begin like one."""
        if payload[:2] == MAGIC.to_bytes(2, "big") and len(payload) >= HEADER_BYTES:
            return TrellisFrame
        return super().guess_payload_class(payload)

    def fields_of_body(self) -> list[Any] | None:
        """Return the body's values in order; None if it was cut or is not msgpack."""
        try:
            decoded = msgspec.msgpack.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return decoded if isinstance(decoded, list) else None


bind_layers(TCP, TrellisFrame, sport=PEER_PORT)
bind_layers(TCP, TrellisFrame, dport=PEER_PORT)
