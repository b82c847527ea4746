"""Cyclon: views of fixed size that nodes shuffle in pairs. Each time, a node asks the node of its oldest entry."""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.contract import NodeId
from peer.core.frames import register
from peer.core.membership.gossip import Descriptor, Entry, GossipFrame, GossipMembership, GossipParameters
from peer.core.parts import State, Turn


@register
class CyclonShuffle(GossipFrame, frozen=True):
    """Entries to swap, the sender's own first. An age counts the exchanges that the holders of the entry began."""

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
    """Enhanced shuffling: a node swaps random entries with the node of its oldest entry.

    It keeps the entries that it gave as long as there is room for them.

    A node removes the entry of the node that it asks, so the entries of a failed node vanish one by one as their
    holders ask it. The swap conserves the other entries, which balances in-degrees.

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
        """Return the number of exchanges begun so far: each adds one to the ages of the view's entries (step 1)."""
        return self._rounds

    def next_partner(self, turn: Turn) -> NodeId:
        """Remove the oldest entry from the view and return its node (steps 1 to 3)."""
        self._rounds += 1
        oldest = min(self.view, key=lambda node: self.view[node].since)
        del self.view[oldest]
        self.changed()
        return oldest

    def offer(self, turn: Turn) -> tuple[Descriptor, ...]:
        """Return this node's own entry and random other entries (steps 2 to 4)."""
        self._given = self._sample(self._length - 1)
        return (self.describe_self(), *self.describe(turn, self._given))

    def answer(self, turn: Turn, entries: tuple[Descriptor, ...]) -> tuple[Descriptor, ...]:
        given = self._sample(self._length)
        answer = self.describe(turn, given)
        self._take(turn, entries, given)
        return answer

    def conclude(self, turn: Turn, entries: tuple[Descriptor, ...]) -> None:
        """Take the received entries in place of the given ones (steps 6 and 7)."""
        self._take(turn, entries, self._given)

    def _sample(self, count: int) -> list[NodeId]:
        return self.draws.sample(list(self.view), min(count, len(self.view)))

    def _take(self, turn: Turn, entries: Iterable[Descriptor], given: Iterable[NodeId]) -> None:
        """Take received entries into empty places first, then in place of given entries. Drop entries of known nodes.

        Args:
            turn: the present turn.
            entries: the received entries.
            given: the nodes of the entries that this node gave.
        """
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
