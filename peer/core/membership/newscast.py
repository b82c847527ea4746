"""Newscast: after every exchange, both nodes have the freshest entries of both."""

from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.contract import NodeId
from peer.core.frames import register
from peer.core.membership.gossip import Descriptor, Entry, GossipFrame, GossipMembership, GossipParameters
from peer.core.parts import State, Turn

MICROSECOND_NS = 1000


@register
class NewscastNews(GossipFrame, frozen=True):
    """The sender's cache and its own entry. Ages are in us, at the instant of sending."""

    kind: ClassVar[int] = 54


@register
class NewscastReply(GossipFrame, frozen=True):
    """The same as an answer."""

    kind: ClassVar[int] = 55


class NewscastParameters(GossipParameters, forbid_unknown_fields=True, frozen=True):
    """Newscast: a cache of the newest entries."""

    cache_size: Annotated[int, Meta(ge=1, le=1000)] = 20
    """c: entries of a cache."""


class Newscast(GossipMembership):
    """Exchanges of whole caches with a random node of the cache. A node keeps the freshest c entries of distinct nodes.

    Frames contain ages instead of instants, so that nodes need no common clock. An entry seems fresher than it is by
    the time that its frame was in flight. Entries of failed nodes grow old and give way to fresher ones, but only if
    the network is larger than the cache. So (ours) a node drops a node that it could not reach at once, and ignores
    entries of it from before.

    Source: Jelasity, Kowalczyk, van Steen: Newscast Computing, Vrije Universiteit Amsterdam IR-CS-006, 2003, section 2;
    Jelasity et al.: Gossip-based peer sampling, ACM TOCS 25(3), 2007, section 2.5.
    """

    Parameters = NewscastParameters
    frames = (NewscastNews, NewscastReply)
    request = NewscastNews
    reply = NewscastReply

    def __init__(self, state: State, parameters: NewscastParameters) -> None:
        super().__init__(state, parameters, parameters.cache_size)
        self._unreached: dict[NodeId, int] = {}

    @property
    def most_entries(self) -> int:
        return self.size + 1

    def clock(self, turn: Turn) -> int:
        return turn.now_ns // MICROSECOND_NS

    def next_partner(self, turn: Turn) -> NodeId:
        return self.draws.choice(list(self.view))

    def offer(self, turn: Turn) -> tuple[Descriptor, ...]:
        return (self.describe_self(), *self.describe(turn, self.view))

    def answer(self, turn: Turn, entries: tuple[Descriptor, ...]) -> tuple[Descriptor, ...]:
        """Return the entries from before the exchange, and merge the received ones."""
        answer = self.offer(turn)
        self._merge(turn, entries)
        return answer

    def conclude(self, turn: Turn, entries: tuple[Descriptor, ...]) -> None:
        self._merge(turn, entries)

    def fail(self, turn: Turn, partner: NodeId) -> None:
        """Drop a node that could not be reached. Remember at most as many such nodes as a cache has entries."""
        self._unreached.pop(partner, None)
        self._unreached[partner] = self.clock(turn)
        if len(self._unreached) > self.size:
            del self._unreached[next(iter(self._unreached))]
        if self.view.pop(partner, None) is not None:
            self.changed()

    def _merge(self, turn: Turn, entries: tuple[Descriptor, ...]) -> None:
        """Keep the freshest entry of each node, and the freshest of these; of equally fresh ones, the earlier known."""
        now, merged = self.clock(turn), self.view
        for descriptor in entries:
            node, since = descriptor.node, now - descriptor.age
            held = merged.get(node)
            if node == self.state.node or (held is not None and held.since >= since):
                continue
            if self._unreached.get(node, since - 1) < since:
                merged[node] = Entry(since, descriptor.topics)
        freshest = sorted(merged.items(), key=lambda item: -item[1].since)
        self.view = dict(freshest[: self.size])
        self.changed()
