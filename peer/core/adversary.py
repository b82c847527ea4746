"""Nodes that misbehave, whatever their protocol: each is a composed node that does one thing otherwise.

What others can see of an adversary is what they can see of any node. Its trace says ``withhold`` for every copy that it
did not pass on, so that a post-mortem can tell attacks from losses.
"""

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct

from peer.core.asker import Asker
from peer.core.bitset import bitset, members
from peer.core.contract import Directory, Effect, Event, NodeId, Send, Trace, one_by_one, publisher_of
from peer.core.frames import Data
from peer.core.node import ComposedNode, StatefulNode
from peer.core.parts import Part, State, Turn
from peer.core.processing_delay import UnhurriedNode
from peer.core.randomness import substream
from peer.trace import TraceEvent

MILLISECOND_NS = 1_000_000
LATE = "adversary/late"
MESH = "adversary/mesh"
MESH_RETRY_NS = 100 * MILLISECOND_NS
"""How long an eclipse attacker waits before it restores a link to another one."""

Numbers = tuple[Annotated[int, Meta(ge=0)], ...]


class Withholder(ComposedNode):
    """A node that does not pass on some copies of other nodes' messages. Its own messages it publishes as any node."""

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        return [self._spoil(now_ns, effect) for effect in one_by_one(super().handle(now_ns, event))]

    def withholds(self, copy: Data) -> bool:
        """Whether a copy that the protocol wants to pass on is not passed on."""
        raise NotImplementedError

    def _spoil(self, now_ns: int, effect: Effect) -> Effect:
        if not isinstance(effect, Send) or not isinstance(effect.frame, Data):
            return effect
        copy = effect.frame
        if publisher_of(copy.message_id) == self.state.node or not self.withholds(copy):
            return effect
        told: dict[str, Any] = {"peer": effect.peer, "message_id": copy.message_id, "topics": copy.topics}
        return Trace(TraceEvent("withhold", now_ns, self.state.node, **told))


class TopicAttackerParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """What a topic attacker attacks."""

    victim_topics: Numbers


class TopicAttacker(Withholder):
    """Subscribes to the victim topics and passes nothing on that is published on any of them.

    That it subscribes to them is its configuration's business, as with any node.

    Source: Topiary section V-D1.
    """

    Parameters = TopicAttackerParameters

    def __init__(self, state: State, parts: dict[str, Part], parameters: TopicAttackerParameters) -> None:
        super().__init__(state, parts)
        self._victims = frozenset(parameters.victim_topics)

    def withholds(self, copy: Data) -> bool:
        return not self._victims.isdisjoint(copy.topics)


class DropperParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """How much a dropper drops."""

    drop_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Dropper(Withholder):
    """Passes each copy of another node's message on with the probability 1 - ``drop_ratio``."""

    Parameters = DropperParameters

    def __init__(self, state: State, parts: dict[str, Part], parameters: DropperParameters) -> None:
        super().__init__(state, parts)
        self._drop_ratio = parameters.drop_ratio
        self._draws = substream(state.seed, state.node, "adversary")

    def withholds(self, copy: Data) -> bool:
        return self._draws.random() < self._drop_ratio


class SlowNodeParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """How slow a slow node is."""

    delay_ms: Annotated[float, Meta(gt=0, le=60_000)] = 500.0


class SlowNode(UnhurriedNode):
    """Handles every frame ``delay_ms`` after it arrived.

    Source: Topiary section VII (attackers with long processing delays).
    """

    Parameters = SlowNodeParameters

    def __init__(self, state: State, parts: dict[str, Part], parameters: SlowNodeParameters) -> None:
        super().__init__(ComposedNode(state, parts), round(parameters.delay_ms * MILLISECOND_NS), LATE)


class EclipseAttackerParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Whom an eclipse attacker works with."""

    accomplices: Numbers


class EclipseMesh(Part):
    """Keeps a link to every other attacker; of two of them the lower one opens.

    Where a protocol closes one, it is opened again after ``MESH_RETRY_NS``.
    """

    def __init__(self, state: State, parameters: EclipseAttackerParameters) -> None:
        super().__init__(state)
        self._targets = bitset(node for node in parameters.accomplices if node > state.node)
        self._directory = Directory()

    def meet(self, turn: Turn, directory: Directory) -> None:
        self._directory = directory
        self._restore(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Restore the mesh, after a while: also where the driver would, since the protocol may tell it not to."""
        if self._targets >> peer & 1:
            turn.set_timer(MESH, turn.now_ns + MESH_RETRY_NS)

    def fire(self, turn: Turn, name: str) -> None:
        self._restore(turn)

    def _restore(self, turn: Turn) -> None:
        for peer in members(self._targets & self._directory.nodes & ~bitset(self.state.neighbours)):
            turn.connect(peer)


class EclipseAttacker(ComposedNode):
    """Fully meshed with all other attackers, and otherwise a perfect node: its links make it fast, hence attractive.

    Source: Topiary section V-D2.
    """

    Parameters = EclipseAttackerParameters

    def __init__(self, state: State, parts: dict[str, Part], parameters: EclipseAttackerParameters) -> None:
        super().__init__(state, parts | {"adversary": EclipseMesh(state, parameters)})


class Adversary(Struct, frozen=True):
    """A kind of adversary.

    Attributes:
        name: what specifications and experiments call it.
        behaviour: its class, which is made with the node's ``State``, the node's parts by role, and an instance of its
            attribute ``Parameters``. A parameter has the value of the key of this name in the adversary's section or in
            ``[adversary]``; ``accomplices`` has the numbers of all adversaries, ``topics`` the number of topics.
        parameters: the form of a section with its name; None = it has none.
    """

    name: str
    behaviour: Callable[..., StatefulNode]
    parameters: type[Struct] | None = None


ADVERSARIES: dict[str, Adversary] = {
    adversary.name: adversary
    for adversary in (
        Adversary("topic-attacker", TopicAttacker),
        Adversary("eclipse", EclipseAttacker),
        Adversary("slow", SlowNode),
        Adversary("dropper", Dropper),
        Adversary("asker", Asker),
    )
}
"""Those of Trellis."""
