"""The schema of traces. A peer writes ``trace/<node>.jsonl`` with one JSON object per line.

Names follow go-libp2p-pubsub's trace events. Absent fields are omitted. The first line of a file is ``start``, and the
last line is ``stop`` with the number of lines before it. A file without a matching ``stop`` was cut off.

Instants are nanoseconds of CLOCK_MONOTONIC of the peer's machine.
"""

from typing import Final

from msgspec import Struct

from peer.core.frames import Data, Frame

VERSION: Final = 1

JOINED: Final = "joined"
LEFT: Final = "left"
CRASHED: Final = "crashed"
"""The reasons of ``join`` and ``leave`` events if an instance of a node begins or ends during the run."""

REMARKS: Final = ("sequence_jump",)
"""The reasons of ``reject`` events about copies that the node takes in spite of them. Another event has the result."""

EVENTS: Final = {
    "start": "the peer runs; version, topics = its subscriptions",
    "stop": "the trace is complete; records = the number of lines before this one",
    "publish": "message_id, topics, len_bytes = payload",
    "deliver": "first copy on a subscribed topic: message_id, topics, peer it came from (none at the publisher), hops",
    "duplicate": "a copy after the first: message_id, topics, peer, hops",
    "relay": "first copy on topics that the node does not subscribe to: message_id, topics, peer, hops",
    "reject": "the node refused a frame or a connection: peer, reason; message_id and kind if known",
    "join": "the node subscribes: topics; reason `joined` = an instance of the node begins with these topics",
    "leave": "the node unsubscribes: topics; reason `left` or `crashed` = an instance of the node ends",
    "graft": "logical links begin: peer, topics",
    "prune": "logical links end: peer, topics, reason",
    "add_peer": "a physical link is up: peer, conn, direction = this node's side of it",
    "remove_peer": "a physical link is down: peer, conn, reason",
    "send": "a frame was handed to the socket: peer, kind, conn, direction, off, len_bytes; "
    "data also message_id, topics, hops, ttl",
    "receive": "a frame was read: the same fields as send",
    "epoch": "a node that learns its neighbours ended an epoch: epoch, score of the neighbours it keeps",
    "withhold": "an adversary did not forward a copy: peer = the intended receiver, message_id, topics",
    "disclose": "an asking adversary concluded a node's topics: peer = that node, topics",
    "takeover": "the node manages extents of the surface that nobody managed any more (implicit groups): score = their "
    "share of the surface, 0..1",
    "drop": "a frame was not sent: peer, kind, len_bytes, reason; message_id if it has one",
}
"""Every event with its fields besides ``ts_ns``, ``event`` and ``node``."""


class TraceEvent(Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of a trace.

    ``conn`` is ``"orig_ip:orig_port-resp_ip:resp_port"``; the originator opened the TCP connection. ``direction`` is
    the side that sent the bytes: ``"orig"`` or ``"resp"``. ``off`` is the offset of the frame's first byte in that
    side's byte stream; the first byte after the handshake has offset 0.
    """

    event: str
    ts_ns: int = 0
    node: int = -1
    peer: int | None = None
    message_id: int | None = None
    topics: tuple[int, ...] | None = None
    kind: int | None = None
    conn: str | None = None
    direction: str | None = None
    off: int | None = None
    len_bytes: int | None = None
    hops: int | None = None
    ttl: int | None = None
    reason: str | None = None
    version: int | None = None
    records: int | None = None
    epoch: int | None = None
    score: float | None = None


def make_frame_event(
    event: str,
    now_ns: int,
    node: int,
    peer: int | None,
    conn: str,
    direction: str,
    frame: Frame,
    off: int,
    len_bytes: int,
) -> TraceEvent:
    """Return the ``send`` or ``receive`` event of a frame; the arguments are fields of ``TraceEvent``.

    The fields are passed by position, since there are two events for every frame.
    """
    message_id = topics = hops = ttl = None
    if isinstance(frame, Data):
        message_id, topics, hops, ttl = frame.message_id, frame.topics, frame.hops, frame.ttl
    return TraceEvent(
        event, now_ns, node, peer, message_id, topics, frame.kind, conn, direction, off, len_bytes, hops, ttl
    )


def make_drop_event(now_ns: int, node: int, peer: int, frame: Frame, len_bytes: int, reason: str) -> TraceEvent:
    """Return the event of a frame that is not sent; the arguments are fields of ``TraceEvent``."""
    message_id = getattr(frame, "message_id", None)
    return TraceEvent(
        "drop", now_ns, node, peer, message_id=message_id, kind=frame.kind, len_bytes=len_bytes, reason=reason
    )
