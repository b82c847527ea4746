"""The frames of T-Man: exchanges of routing tables, profiles, and releases of links."""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from peer.core.encoded_sizes import count_array_head_bytes, count_integers_bytes, count_set_bytes
from peer.core.frames import Disclosure, Frame, register
from peer.core.identifiers import NodeId, NodeNumber, TopicNumber
from peer.protocols.tman.shared_sets import PerSet

Topics = frozenset[TopicNumber]
Ring = Annotated[tuple[NodeNumber, ...], Meta(max_length=2)]


_set_bytes = PerSet(count_set_bytes)


class Contact(Struct, frozen=True, array_like=True, gc=False):
    """An entry of an exchange: a node, its age, and its subscriptions.

    ``age``: rounds since the sender, or a node that told the sender, received a profile from the node; 0 for random
    nodes from peer sampling.
    """

    node: NodeNumber
    age: Annotated[int, Meta(ge=0, lt=2**31)]
    topics: Topics


class Exchange(Frame, frozen=True):
    """One direction of an exchange: random nodes and the sender's routing table."""

    contacts: tuple[Contact, ...]

    def disclosed(self, sender: NodeId) -> Iterable[Disclosure]:
        return ((contact.node, contact.topics) for contact in self.contacts)

    def count_body_bytes(self) -> int:
        """Count the contacts: each is an array of three in an array, in the array of the frame's fields."""
        contacts = self.contacts
        return (
            1
            + count_array_head_bytes(len(contacts))
            + len(contacts)
            + sum([_set_bytes[contact.topics] for contact in contacts])
            + count_integers_bytes([contact.node for contact in contacts])
            + count_integers_bytes([contact.age for contact in contacts])
        )


@register
class TManRequest(Exchange, frozen=True):
    """The first half of an exchange (Algorithm 2, line 5)."""

    kind: ClassVar[int] = 110


@register
class TManReply(Exchange, frozen=True):
    """The other half (Algorithm 3, line 5)."""

    kind: ClassVar[int] = 111


@register
class TManRelease(Frame, frozen=True):
    """The receiver is not in the sender's routing table. It retires the link unless its own table has the sender."""

    kind: ClassVar[int] = 112


@register
class Profile(Frame, frozen=True):
    """A heartbeat: the sender is up, subscribes to these topics, and has these neighbours on the ring."""

    kind: ClassVar[int] = 113
    own_topics: ClassVar[str] = "topics"
    topics: Topics
    ring: Ring
