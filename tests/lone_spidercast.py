"""One SpiderCast node whose neighbours are the test."""

from peer.core.bitset import bitset
from peer.core.contract import Effect, Started
from peer.protocols.registry import PROTOCOLS, Composition, compose
from peer.protocols.spidercast.frames import SpiderConnect, SpiderHeartbeat
from peer.testing import Solo, connects, sends, traces

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


class Lone(Solo):
    """Node 0, which subscribes to ``topics`` and knows ``others``, each with its topics."""

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
        mix = Composition(overlay, parts.dissemination, parts.membership, parts.interests)
        super().__init__(compose(0, seed, topics, mix, nodes=nodes))
        self.others = {0: topics, **others}
        self.started = self.give(Started())
        self.meet(self.others)

    def round(self, task: str = "greedy", after_s: float = 1.0) -> list:
        self.now_ns += round(after_s * SECOND_NS)
        return self.fire(f"overlay/{task}")

    def beat(self, after_s: float = 0.0) -> dict[int, SpiderHeartbeat]:
        return dict(sends(self.round("heartbeat", after_s)))

    def ask(self, peer: int) -> list:
        """The round in which the node chooses this peer, up to its CONNECT."""
        assert connects(self.round()) == [peer]
        return self.link_up(peer)

    def invite(self, peer: int, task: int = GREEDY, degree: int = 1, target: int = SETTLED) -> list:
        """A CONNECT of a peer, which opens a link for it where there is none."""
        if peer not in self.node.state.neighbours:
            self.link_up(peer, outbound=False)
        return self.receive(peer, SpiderConnect(task, degree, target, 0, self.others[peer]))

    def settle(self, peer: int, task: int = GREEDY) -> None:
        """From now on the neighbour says that it has reached its target."""
        states = [(SETTLED, SETTLED) if task == code else None for code in (GREEDY, RANDOM)]
        self.receive(peer, SpiderHeartbeat(*states, 0, None))

    def neighbours(self, task: int = GREEDY) -> list[int]:
        beats = self.beat()
        return [peer for peer, beat in beats.items() if (beat.greedy, beat.random)[task] is not None]


def logical(effects: list[Effect]) -> list[tuple[str, int, tuple[int, ...], str | None]]:
    return [(event.event, event.peer, event.topics, event.reason) for event in traces(effects)]
