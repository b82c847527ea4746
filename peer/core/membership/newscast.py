"""Newscast: every exchange leaves both nodes with the freshest news of what the two knew."""

from typing import Annotated, ClassVar

from msgspec import Meta

from peer.core.contract import NodeId
from peer.core.frames import register
from peer.core.membership.gossip import Descriptor, Entry, GossipFrame, GossipMembership, GossipParameters
from peer.core.parts import State, Turn

MICROSECOND_NS = 1000


@register
class NewscastNews(GossipFrame, frozen=True):
    """The sender's cache and itself. Ages are in us, at the instant of sending."""

    kind: ClassVar[int] = 54


@register
class NewscastReply(GossipFrame, frozen=True):
    """The same in return."""

    kind: ClassVar[int] = 55


class NewscastParameters(GossipParameters, forbid_unknown_fields=True, frozen=True):
    """Newscast: a cache of the newest entries."""

    cache_size: Annotated[int, Meta(ge=1, le=1000)] = 20
    """c: entries of a cache."""


class Newscast(GossipMembership):
    """Exchange whole caches with a random node of one's own; keep the freshest entry of each node, and the freshest c.

    Ages travel instead of instants, so that nodes need no common clock; an entry seems fresher by the time that it was
    under way. Fresher news outlive those of the dead, but only where the network is larger than the cache. So (ours) a
    node that could not be reached is dropped at once, and news of it from before that are not believed.

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
        """Tell what was known before, and learn."""
        answer = self.offer(turn)
        self._merge(turn, entries)
        return answer

    def conclude(self, turn: Turn, entries: tuple[Descriptor, ...]) -> None:
        self._merge(turn, entries)

    def fail(self, turn: Turn, partner: NodeId) -> None:
        """Forget who could not be reached; remember so of as many as there are in a cache."""
        self._unreached.pop(partner, None)
        self._unreached[partner] = self.clock(turn)
        if len(self._unreached) > self.size:
            del self._unreached[next(iter(self._unreached))]
        if self.view.pop(partner, None) is not None:
            self.changed()

    def _merge(self, turn: Turn, entries: tuple[Descriptor, ...]) -> None:
        """The freshest entry of each node, and of these the freshest; of equally fresh ones those known before."""
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
