"""The numbers that nodes, topics and messages go by."""

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

Workloads number all messages of a run, not those of each publisher: a dictionary begins to search at a key's lowest
bits, and the first messages of all publishers would begin at the same places.
"""


def message_id(publisher: NodeId, number: int) -> MessageId:
    """The identifier of the publisher's message ``number`` (0 .. 2**32 - 1), higher than those of its earlier ones."""
    return publisher << 32 | number


def publisher_of(identifier: MessageId) -> NodeId:
    """The node that published the message."""
    return identifier >> 32
