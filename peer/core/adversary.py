"""Nodes that misbehave, whatever their protocol. Each is a composed node that does one thing differently.

Other nodes see no more of an adversary than of any node. It traces ``withhold`` for every copy that it does not
forward, so that an analysis can tell attacks from losses.
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
"""How long an eclipse attacker waits before it restores a link to another attacker (ns)."""

Numbers = tuple[Annotated[int, Meta(ge=0)], ...]


class Withholder(ComposedNode):
    """A node that does not forward some copies of other nodes' messages. It publishes its own messages normally."""

    def handle(self, now_ns: int, event: Event) -> list[Effect]:
        return [self._spoil(now_ns, effect) for effect in one_by_one(super().handle(now_ns, event))]

    def withholds(self, copy: Data) -> bool:
        """Return whether to withhold a copy that the protocol forwards."""
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
    """The topics that a topic attacker attacks."""

    victim_topics: Numbers


class TopicAttacker(Withholder):
    """Subscribes to the victim topics and forwards no message on any of them.

    Its configuration has these subscriptions, like those of any node.

    Source: Topiary section V-D1.
    """

    Parameters = TopicAttackerParameters

    def __init__(self, state: State, parts: dict[str, Part], parameters: TopicAttackerParameters) -> None:
        super().__init__(state, parts)
        self._victims = frozenset(parameters.victim_topics)

    def withholds(self, copy: Data) -> bool:
        return not self._victims.isdisjoint(copy.topics)


class DropperParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The share of copies that a dropper drops."""

    drop_ratio: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Dropper(Withholder):
    """Forwards each copy of another node's message with the probability 1 - ``drop_ratio``."""

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
    """Handles every frame ``delay_ms`` after its arrival.

    Source: Topiary section VII (attackers with long processing delays).
    """

    Parameters = SlowNodeParameters

    def __init__(self, state: State, parts: dict[str, Part], parameters: SlowNodeParameters) -> None:
        super().__init__(ComposedNode(state, parts), round(parameters.delay_ms * MILLISECOND_NS), LATE)


class EclipseAttackerParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The other attackers that an eclipse attacker works with."""

    accomplices: Numbers


class EclipseMesh(Part):
    """Keeps a link to every other attacker. The attacker with the lower number opens it.

    If a protocol closes such a link, the attacker redials after ``MESH_RETRY_NS``.
    """

    def __init__(self, state: State, parameters: EclipseAttackerParameters) -> None:
        super().__init__(state)
        self._targets = bitset(node for node in parameters.accomplices if node > state.node)
        self._directory = Directory()

    def meet(self, turn: Turn, directory: Directory) -> None:
        self._directory = directory
        self._restore(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Restore the mesh after a pause, even if the driver redials, since the protocol may stop it."""
        if self._targets >> peer & 1:
            turn.set_timer(MESH, turn.now_ns + MESH_RETRY_NS)

    def fire(self, turn: Turn, name: str) -> None:
        self._restore(turn)

    def _restore(self, turn: Turn) -> None:
        for peer in members(self._targets & self._directory.nodes & ~bitset(self.state.neighbours)):
            turn.connect(peer)


class EclipseAttacker(ComposedNode):
    """A node with links to all other attackers that otherwise obeys its protocol.

    Its links make it fast, so that other nodes prefer it as a neighbour.

    Source: Topiary section V-D2.
    """

    Parameters = EclipseAttackerParameters

    def __init__(self, state: State, parts: dict[str, Part], parameters: EclipseAttackerParameters) -> None:
        super().__init__(state, parts | {"adversary": EclipseMesh(state, parameters)})


class Adversary(Struct, frozen=True):
    """A kind of adversary.

    Attributes:
        name: its name in specifications and experiments.
        behaviour: its class. It is called with the node's ``State``, the node's parts by role, and an instance of its
            attribute ``Parameters``. A parameter has the value of the key of this name in the adversary's section or in
            ``[adversary]``; ``accomplices`` has the numbers of all adversaries, ``topics`` the number of topics.
        parameters: the form of the section with its name; None = there is no such section.
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
"""The kinds of adversaries in Trellis."""
