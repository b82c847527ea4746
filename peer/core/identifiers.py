"""The numbers that identify nodes, topics and messages."""

from typing import Annotated

from msgspec import Meta

NodeId = int
"""A participant's number, 0 .. 2**31 - 1. The driver maps it to an address."""

TopicId = int
"""A topic's number, 0 .. 2**32 - 1."""

NodeNumber = Annotated[int, Meta(ge=0, lt=2**31)]
"""A ``NodeId`` in a frame: the codec refuses any other number."""

TopicNumber = Annotated[int, Meta(ge=0, lt=2**32)]
"""A ``TopicId`` in a frame."""

MessageId = int
"""``publisher << 32 | number``, below 2**63: unique in a run, ordered per publisher.

Workloads count all messages of a run, not the messages of each publisher. A dictionary searches by the lowest bits of
a key first, in which the first messages of all publishers would be equal.
"""


def message_id(publisher: NodeId, number: int) -> MessageId:
    """Return the identifier of a message; its ``number`` (0 .. 2**32 - 1) rises with each message of a publisher."""
    return publisher << 32 | number


def publisher_of(identifier: MessageId) -> NodeId:
    """Return the node that published the message."""
    return identifier >> 32
