"""One SpiderCast node on a table, for unit tests: what it is told, and what it wants done."""

from __future__ import annotations

from peer.core.bitset import bitset
from peer.core.contract import (
    Connect,
    Directory,
    Disconnect,
    FrameReceived,
    LinkUp,
    PeerInfo,
    PeerList,
    Send,
    SetTimer,
    Started,
    TimerFired,
    Trace,
)
from peer.core.frames import Frame
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.protocols.spidercast.frames import (
    SpiderConnect,
    SpiderHeartbeat,
)

SECOND_NS = 1_000_000_000
GREEDY, RANDOM = 0, 1
SETTLED = 3


class View:
    """A membership that knows these nodes' interests."""

    def __init__(self, interests: dict[int, tuple[int, ...]]) -> None:
        self.known = bitset(interests)
        self._interests = {node: frozenset(topics) for node, topics in interests.items()}

    def topics_of(self, node: int) -> frozenset[int]:
        return self._interests.get(node, frozenset())

    def subscribers(self, topic: int) -> int:
        return bitset(node for node, topics in self._interests.items() if topic in topics)


class Desk:
    """Node 0 on a table: it subscribes to ``topics``, knows ``others``, and is told what happens."""

    def __init__(
        self,
        topics: tuple[int, ...],
        others: dict[int, tuple[int, ...]],
        name: str = "spidercast",
        seed: int = 7,
        nodes: int = 0,
        **given: object,
    ) -> None:
        parts = PROTOCOLS[name].composition
        overlay = {"name": name, **given}
        self.node = compose(
            0, seed, topics, Composition(overlay, parts.dissemination, parts.membership, parts.interests), nodes=nodes
        )
        self.now_ns = 0
        self.others = {0: topics, **others}
        self.started = self.give(Started())
        self.give(PeerList(Directory(PeerInfo(node, interest) for node, interest in self.others.items())))

    def give(self, event) -> list:
        return self.node.handle(self.now_ns, event)

    def hear(self, peer: int, frame: Frame) -> list:
        return self.give(FrameReceived(peer, frame))

    def round(self, task: str = "greedy", after_s: float = 1.0) -> list:
        self.now_ns += round(after_s * SECOND_NS)
        return self.give(TimerFired(f"overlay/{task}"))

    def beat(self, after_s: float = 0.0) -> dict[int, SpiderHeartbeat]:
        return dict(sends(self.round("heartbeat", after_s)))

    def ask(self, peer: int) -> list:
        """The round in which the node chooses this peer, up to its CONNECT."""
        assert connects(self.round()) == [peer]
        return self.give(LinkUp(peer, True))

    def invite(self, peer: int, task: int = GREEDY, degree: int = 1, target: int = SETTLED) -> list:
        """A CONNECT of a peer, which opens a link for it where there is none."""
        if peer not in self.node.state.neighbours:
            self.give(LinkUp(peer, False))
        return self.hear(peer, SpiderConnect(task, degree, target, 0, self.others[peer]))

    def settle(self, peer: int, task: int = GREEDY) -> None:
        """From now on the neighbour says that it has reached its target."""
        states = [(SETTLED, SETTLED) if task == code else None for code in (GREEDY, RANDOM)]
        self.hear(peer, SpiderHeartbeat(*states, 0, None))

    def neighbours(self, task: int = GREEDY) -> list[int]:
        beats = self.beat()
        return [peer for peer, beat in beats.items() if (beat.greedy, beat.random)[task] is not None]


def sends(effects: list) -> list[tuple[int, Frame]]:
    return [(effect.peer, effect.frame) for effect in effects if isinstance(effect, Send)]


def connects(effects: list) -> list[int]:
    return [effect.peer for effect in effects if isinstance(effect, Connect)]


def closed(effects: list) -> list[tuple[int, str]]:
    return [(effect.peer, effect.reason) for effect in effects if isinstance(effect, Disconnect)]


def timers(effects: list) -> dict[str, int]:
    return {effect.name: effect.at_ns for effect in effects if isinstance(effect, SetTimer)}


def logical(effects: list) -> list[tuple[str, int, tuple[int, ...], str | None]]:
    events = [effect.event for effect in effects if isinstance(effect, Trace)]
    return [(event.event, event.peer, event.topics, event.reason) for event in events]
