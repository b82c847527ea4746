"""An adversary that asks: it opens a link to every node in turn and records the subscriptions that nodes disclose.

Otherwise it is an honest node of its protocol. It traces everything that it learns as ``disclose``.
"""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from peer.core.bitset import lowest
from peer.core.contract import Connect, Directory, Disconnect, Effect, Event, NodeId, Send, TopicId, one_by_one
from peer.core.dissemination.topic_flood import TopicFlood
from peer.core.frames import Data, Frame
from peer.core.node import ComposedNode
from peer.core.parts import Part, State, Turn

MILLISECOND_NS = 1_000_000
ASK = "adversary/ask"

STAY_NS = 3_000 * MILLISECOND_NS
"""How long the asker keeps a link that it opened to ask (ns), since answers and messages may arrive."""

MOST_PROBED = 64
"""Most links that the asker has open at a time only to ask."""


class AskerParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Which topics an asker asks for, and how often."""

    topics: Annotated[int, Meta(ge=0, lt=2**32)]
    """It asks for the topics 0 .. topics - 1."""
    ask_interval_ms: Annotated[float, Meta(gt=0, le=60_000)] = 100.0
    """Time between the nodes that it asks."""


class Asking(Part):
    """Asks one node after another, and remembers the subscriptions that it learned.

    Attributes:
        probed: the nodes with a link, or an attempt at one, that serves only to ask; each with its end (ns).
    """

    overhears = (Frame,)

    def __init__(self, state: State, parts: dict[str, Part], parameters: AskerParameters) -> None:
        super().__init__(state)
        self.probed: dict[NodeId, int] = {}
        self.opened: set[NodeId] = set()
        self.asked: list[Effect] = []
        self._interval_ns = round(parameters.ask_interval_ms * MILLISECOND_NS)
        topics = tuple(range(parameters.topics))
        distinct = dict.fromkeys(parts.values())
        self._questions = [frame for part in distinct for frame in part.ask_interests(state.node, topics)]
        self._flood = parts.get("dissemination")
        self._directory = Directory()
        self._last: NodeId = state.node
        self._known: dict[NodeId, set[TopicId]] = {}

    def start(self, turn: Turn) -> None:
        turn.set_timer(ASK, turn.now_ns + self._interval_ns)

    def meet(self, turn: Turn, directory: Directory) -> None:
        """Note the interests that the bootstrap service discloses."""
        self._directory = directory
        for entry in directory:
            self._note(turn, entry.node, entry.topics or ())

    def fire(self, turn: Turn, name: str) -> None:
        """Close the links that have been open for long enough, and ask the next node."""
        turn.set_timer(ASK, turn.now_ns + self._interval_ns)
        for peer in [peer for peer, until_ns in self.probed.items() if until_ns <= turn.now_ns]:
            del self.probed[peer]
            turn.disconnect(peer, "asked")
        following = self._next()
        if following in self.state.neighbours:
            self._ask(following)
        elif following not in self.state.wanted | {self.state.node} and len(self.probed) < MOST_PROBED:
            self.probed[following] = turn.now_ns + STAY_NS
            self.opened.add(following)
            turn.connect(following)

    def _next(self) -> NodeId:
        """Return the next higher number after the node asked last, or the lowest; this node if there is no other."""
        others = self._directory.nodes & ~(1 << self.state.node)
        if not others:
            return self.state.node
        higher = (others >> (self._last + 1)) << (self._last + 1)
        self._last = lowest(higher or others)
        return self._last

    def _ask(self, peer: NodeId) -> None:
        self.asked += [Send(peer, frame) for frame in self._questions]

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        if peer in self.probed:
            self._ask(peer)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Do not redial a node that closed the link: the asker asks it again in the next round."""
        if self.probed.pop(peer, None) is not None and retrying:
            turn.disconnect(peer, "asked")

    def overhear(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, Data):
            if isinstance(self._flood, TopicFlood) and (len(frame.topics) == 1 or not self._flood.whole):
                self._note(turn, peer, frame.topics)  # copies go along links of their topics only
            return
        for node, topics in frame.disclosed(peer):
            self._note(turn, node, topics)

    def _note(self, turn: Turn, node: NodeId, topics: Iterable[TopicId]) -> None:
        if node == self.state.node:
            return
        known = self._known.setdefault(node, set())
        if new := sorted({*topics} - known):
            known.update(new)
            turn.trace("disclose", peer=node, topics=tuple(new))


class Asker(ComposedNode):
    """A node that asks.

    On a link that serves only to ask, it sends its questions and drops everything that its other parts send.
    """

    Parameters = AskerParameters

    def __init__(self, state: State, parts: dict[str, Part], parameters: AskerParameters) -> None:
        self._asking = Asking(state, parts, parameters)
        super().__init__(state, parts | {"adversary": self._asking})

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        asking = self._asking
        effects = [effect for effect in one_by_one(super().handle(now_ns, event)) if self._may_do(effect)]
        asked, asking.asked = asking.asked, []
        asking.opened.clear()
        return effects + asked

    def _may_do(self, effect: Effect) -> bool:
        """Return whether to carry out an effect: not if another part uses a link that serves only to ask."""
        asking = self._asking
        if isinstance(effect, Connect) and effect.peer not in asking.opened:
            asking.probed.pop(effect.peer, None)  # it is a neighbour from now on
        return not (isinstance(effect, (Send, Disconnect)) and effect.peer in asking.probed)
