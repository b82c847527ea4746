"""Cyclon: views of fixed size that nodes shuffle in pairs, the oldest entry's node being asked each time."""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.contract import NodeId
from peer.core.frames import register
from peer.core.membership.gossip import Descriptor, Entry, GossipFrame, GossipMembership, GossipParameters
from peer.core.parts import State, Turn


@register
class CyclonShuffle(GossipFrame, frozen=True):
    """Entries to swap, the sender's own first. Ages count the exchanges that their holders began."""

    kind: ClassVar[int] = 50


@register
class CyclonReply(GossipFrame, frozen=True):
    """The entries given in return."""

    kind: ClassVar[int] = 51


class CyclonParameters(GossipParameters, forbid_unknown_fields=True, frozen=True):
    """Cyclon: a view that nodes shuffle in pairs."""

    view_size: Annotated[int, Meta(ge=1, le=1000)] = 20
    """c: entries of a view."""
    shuffle_length: Annotated[int, Meta(ge=1, le=1000)] = 8
    """l: entries that each side of a shuffle sends, at most c; the initiator's include its own entry."""


class Cyclon(GossipMembership):
    """Enhanced shuffling: ask the node of the oldest entry, swap random entries, keep what one gave if there is room.

    The asked node's entry is gone from the view as soon as it is asked, so a dead node's entries vanish one by one as
    their holders ask it; the swap conserves the other entries, which balances in-degrees.

    Source: Voulgaris, Gavidia, van Steen: CYCLON, Journal of Network and Systems Management 13(2), 2005, section 3.2.
    """

    Parameters = CyclonParameters
    frames = (CyclonShuffle, CyclonReply)
    request = CyclonShuffle
    reply = CyclonReply

    def __init__(self, state: State, parameters: CyclonParameters) -> None:
        super().__init__(state, parameters, parameters.view_size)
        self._length = min(parameters.shuffle_length, parameters.view_size)
        self._rounds = 0
        self._given: list[NodeId] = []

    @property
    def most_entries(self) -> int:
        return self._length

    def clock(self, turn: Turn) -> int:
        """The exchanges begun so far: entries of the view age by one with each (step 1)."""
        return self._rounds

    def next_partner(self, turn: Turn) -> NodeId:
        """Take the oldest entry out of the view (steps 1 to 3)."""
        self._rounds += 1
        oldest = min(self.view, key=lambda node: self.view[node].since)
        del self.view[oldest]
        self.changed()
        return oldest

    def offer(self, turn: Turn) -> tuple[Descriptor, ...]:
        """This node's own entry and random others (steps 2 to 4)."""
        self._given = self._sample(self._length - 1)
        return (self.describe_self(), *self.describe(turn, self._given))

    def answer(self, turn: Turn, entries: tuple[Descriptor, ...]) -> tuple[Descriptor, ...]:
        given = self._sample(self._length)
        answer = self.describe(turn, given)
        self._take(turn, entries, given)
        return answer

    def conclude(self, turn: Turn, entries: tuple[Descriptor, ...]) -> None:
        """Take the entries in place of those given (steps 6 and 7)."""
        self._take(turn, entries, self._given)

    def _sample(self, count: int) -> list[NodeId]:
        return self.draws.sample(list(self.view), min(count, len(self.view)))

    def _take(self, turn: Turn, entries: Iterable[Descriptor], given: Iterable[NodeId]) -> None:
        """Fill empty places first, then those of entries given; entries of known nodes are dropped."""
        view, now = self.view, self.clock(turn)
        leaving = iter(given)
        for descriptor in entries:
            if descriptor.node == self.state.node or descriptor.node in view:
                continue
            if len(view) >= self.size:
                place = next((node for node in leaving if node in view), None)
                if place is None:
                    break
                del view[place]
            view[descriptor.node] = Entry(now - descriptor.age, descriptor.topics)
        self.changed()
