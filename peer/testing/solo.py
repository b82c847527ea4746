"""One node alone. The test is its driver and its neighbours."""

from collections.abc import Mapping
from typing import Any, Self, TypeVar

from peer.core import contract
from peer.core.contract import Directory, Effect, Event, NodeId, PeerInfo, TopicId
from peer.core.frames import Frame
from peer.core.node import StatefulNode
from peer.testing.reading import part_of, sends

F = TypeVar("F", bound=Frame)


class Solo:
    """Drives one node. Nothing happens by itself: the test gives each event, and advances the time.

    A link comes up only when the test brings it up, even if the node asked for it before. Frames reach the node as
    objects. Each method that gives an event returns the effects of that event only. ``advance`` fires the timers that
    become due. ``fire`` fires a timer at once, even if it is not set.

    Attributes:
        node: the node under test.
        now_ns: the present virtual instant (ns).
        effects: the effects since the start or the last ``forget``, in order.
        timers: name -> instant (ns) of the timers that are set.
    """

    def __init__(self, node: StatefulNode) -> None:
        self.node = node
        self.now_ns = 0
        self.effects: list[Effect] = []
        self.timers: dict[str, int] = {}

    def give(self, event: Event) -> list[Effect]:
        """Give an event to the node now, and return its effects."""
        if isinstance(event, contract.TimerFired):
            self.timers.pop(event.name, None)
        effects = self.node.handle(self.now_ns, event)
        for effect in effects:
            if isinstance(effect, contract.SetTimer):
                self.timers[effect.name] = effect.at_ns
            elif isinstance(effect, contract.CancelTimer):
                self.timers.pop(effect.name, None)
        self.effects += effects
        return effects

    def at(self, now_ns: int) -> Self:
        """Set the clock without firing timers, and return the driver: ``solo.at(5).link_up(1)``."""
        self.now_ns = now_ns
        return self

    def start(self, known: Mapping[NodeId, tuple[TopicId, ...] | None]) -> list[Effect]:
        """Start the node and tell it these nodes, each with its topics, or None if they are not disclosed."""
        return [*self.give(contract.Started()), *self.meet(known)]

    def meet(self, known: Mapping[NodeId, tuple[TopicId, ...] | None]) -> list[Effect]:
        """Give another answer of the bootstrap service: the nodes that are up now, as in ``start``."""
        return self.give(contract.PeerList(Directory(PeerInfo(node, topics) for node, topics in known.items())))

    def link_up(self, peer: NodeId, outbound: bool = True) -> list[Effect]:
        """Bring a link up. ``outbound``: the node asked for it."""
        return self.give(contract.LinkUp(peer, outbound))

    def link_down(self, peer: NodeId, reason: str = "reset", retrying: bool = False) -> list[Effect]:
        """End a link, or the attempts to open one.

        Args:
            peer: the other end.
            reason: why it ended, as a driver reports it.
            retrying: whether the driver redials.
        """
        return self.give(contract.LinkDown(peer, reason, retrying))

    def receive(self, peer: NodeId, frame: Frame) -> list[Effect]:
        return self.give(contract.FrameReceived(peer, frame))

    def fire(self, name: str) -> list[Effect]:
        """Fire a timer now, whether it is due or not."""
        return self.give(contract.TimerFired(name))

    def advance(self, duration_ns: int) -> list[Effect]:
        """Advance the time, and fire the timers that become due, each at its instant."""
        end_ns, effects = self.now_ns + duration_ns, list[Effect]()
        while due := [(at_ns, name) for name, at_ns in self.timers.items() if at_ns <= end_ns]:
            at_ns, name = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            effects += self.fire(name)
        self.now_ns = end_ns
        return effects

    def sent(self, kind: type[F], to: NodeId | None = None) -> list[tuple[NodeId, F]]:
        """Return (receiver, frame) of the frames of a kind in ``effects``, or only of those to one peer."""
        return [(peer, frame) for peer, frame in sends(self.effects) if isinstance(frame, kind) and to in (None, peer)]

    def forget(self) -> None:
        self.effects.clear()

    def part(self, role: str) -> Any:  # noqa: ANN401 - a test knows the class of the part
        """Return the node's part in a role such as "overlay"."""
        return part_of(self.node, role)
