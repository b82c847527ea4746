"""One Topiary node whose neighbours are the test: it says which copies they bring and reads what the node does."""

from peer.core.contract import Effect, Event, message_id
from peer.core.frames import Data
from peer.core.payload import make_payload
from peer.protocols.registry import Composition, compose
from peer.protocols.topiary.frames import Release
from peer.testing import Solo, connects, sends, traces

SECOND_NS = 1_000_000_000


class Lone(Solo):
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
        super().__init__(compose(0, seed, interests, Composition(overlay)))
        self.chosen: list[int] = []
        self.start(nodes or dict.fromkeys(range(40), (1, 2)))

    def give(self, event: Event) -> list[Effect]:
        """Something happens to the node; the links that it asks for come up at once."""
        effects = super().give(event)
        for peer in connects(effects):
            if peer not in self.chosen:
                self.chosen.append(peer)
                if peer not in self.node.state.neighbours:
                    self.link_up(peer)
        return effects

    @property
    def scores(self) -> list[float]:
        """The score of the kept neighbours at each epoch's end."""
        return [event.score for event in traces(self.effects) if event.event == "epoch"]

    def keeps(self, peer: int) -> bool:
        """Whether the node chose this neighbour: it keeps the link that the neighbour gives up."""
        return self.receive(peer, Release()) == []

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
        return self.at(at_ns).receive(peer, copy)

    def settle(self, at_ns: int) -> set[int]:
        """The overlap ends; whom the node releases."""
        effects = self.at(at_ns).fire("overlay/settled")
        gone = {peer for peer, frame in sends(effects) if isinstance(frame, Release)}
        for peer in gone:
            self.chosen.remove(peer)
            self.link_down(peer, "released")
        return gone

    def end_epoch(self, at_ns: int) -> list[int]:
        """The epoch ends; whom the node connects to."""
        return connects(self.at(at_ns).fire("overlay/epoch"))
