"""The numbers that nodes, topics and messages go by."""

from __future__ import annotations

NodeId = int
"""A participant's number, 0 .. 2**31 - 1. The driver maps it to an address."""

TopicId = int
"""A topic's number, 0 .. 2**32 - 1."""

MessageId = int
"""``publisher << 32 | sequence``, below 2**63: unique in a run, ordered per publisher."""


def message_id(publisher: NodeId, sequence: int) -> MessageId:
    """The identifier of a publisher's message number ``sequence`` (0 .. 2**32 - 1)."""
    return publisher << 32 | sequence


def publisher_of(identifier: MessageId) -> NodeId:
    """The node that published the message."""
    return identifier >> 32
