"""An adversary that asks: it opens links to every node in turn and notes who says, to it, what a node subscribes to.

Otherwise it is an honest node of its protocol. Its trace says ``disclose`` for everything that it concludes.
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
"""How long the asker keeps a link that it opened to ask: answers and messages may come."""

MOST_PROBED = 64
"""Such links at a time."""


class AskerParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """What an asker asks for, and how fast."""

    topics: Annotated[int, Meta(ge=0, lt=2**32)]
    """It asks for the topics 0 .. topics - 1."""
    ask_interval_ms: Annotated[float, Meta(gt=0, le=60_000)] = 100.0
    """Time between the nodes that it asks."""


class Asking(Part):
    """Asks one node after the other, and remembers what it has concluded.

    Attributes:
        probed: the nodes to which there is a link, or is to be one, only to ask; with the instant at which it ends.
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
        """The bootstrap service may tell everybody's interests, unasked."""
        self._directory = directory
        for entry in directory:
            self._note(turn, entry.node, entry.topics or ())

    def fire(self, turn: Turn, name: str) -> None:
        """Leave those that were asked long ago, and ask the next node."""
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
        """The node after the one that was asked last, by number; after the highest one the lowest; else this one."""
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
        """A guest that closed the link is asked again in the next round."""
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

    To a guest it says its questions and nothing else: what its other parts want of the link is left undone.
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
        """Whether an effect is not one that another part wants on a guest's link."""
        asking = self._asking
        if isinstance(effect, Connect) and effect.peer not in asking.opened:
            asking.probed.pop(effect.peer, None)  # it is a neighbour from now on
        return not (isinstance(effect, (Send, Disconnect)) and effect.peer in asking.probed)
