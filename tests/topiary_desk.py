"""One Topiary node whose neighbours are the test: it says which copies they bring and reads what the node does."""

from __future__ import annotations

from peer.core.contract import (
    Connect,
    Directory,
    FrameReceived,
    LinkDown,
    LinkUp,
    PeerInfo,
    PeerList,
    Send,
    Started,
    TimerFired,
    Trace,
    message_id,
)
from peer.core.frames import Data
from peer.core.payload import make_payload
from peer.protocols.registry import Composition, compose
from peer.protocols.topiary.frames import Release

SECOND_NS = 1_000_000_000


class Desk:
    """A Topiary node with all of its chosen neighbours up, and the copies that it is handed."""

    def __init__(
        self,
        degree: int = 3,
        interests: tuple[int, ...] = (1,),
        nodes: dict | None = None,
        seed: int = 1,
        **parameters,
    ):
        overlay = {"name": "topiary", "degree": degree, "overlap_s": 0.5, "epoch_s": 5.0, **parameters}
        self.node = compose(0, seed, interests, Composition(overlay))
        self.node.handle(0, Started())
        self.chosen: list[int] = []
        everybody = nodes or dict.fromkeys(range(40), (1, 2))
        self.give(0, PeerList(Directory(PeerInfo(number, topics) for number, topics in everybody.items())))
        self.scores: list[float] = []

    def give(self, now_ns: int, event) -> tuple[list, list[int]]:
        """Something happens to the node; its effects, and whom it asks for, whose links come up at once."""
        effects = self.node.handle(now_ns, event)
        asked = [effect.peer for effect in effects if isinstance(effect, Connect)]
        for peer in asked:
            if peer not in self.chosen:
                if peer not in self.node.state.neighbours:
                    self.node.handle(now_ns, LinkUp(peer, True))
                self.chosen.append(peer)
        return effects, asked

    def copy(
        self,
        at_ns: int,
        peer: int,
        publisher: int,
        sequence: int,
        topic: int | tuple[int, ...] = 1,
        claimed: int | None = None,
    ) -> list:
        """A copy comes in; ``claimed``: the publisher's count in its payload, where it is not ``sequence``."""
        identifier = message_id(publisher, sequence)
        topics = topic if isinstance(topic, tuple) else (topic,)
        copy = Data(identifier, topics, 1, 0, make_payload(identifier, sequence if claimed is None else claimed, 20))
        return self.node.handle(at_ns, FrameReceived(peer, copy))

    def settle(self, at_ns: int) -> set[int]:
        """The overlap ends; whom the node releases."""
        effects = self.node.handle(at_ns, TimerFired("overlay/settled"))
        gone = {effect.peer for effect in effects if isinstance(effect, Send) and isinstance(effect.frame, Release)}
        for peer in gone:
            self.chosen.remove(peer)
            self.node.handle(at_ns, LinkDown(peer, "released", False))
        return gone

    def end_epoch(self, at_ns: int) -> list[int]:
        """The epoch ends; whom the node connects to, its score kept for later."""
        effects, asked = self.give(at_ns, TimerFired("overlay/epoch"))
        self.scores += [e.event.score for e in effects if isinstance(e, Trace) and e.event.event == "epoch"]
        return asked
