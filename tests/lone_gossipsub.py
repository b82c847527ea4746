"""One GossipSub node whose peers are the test: it says what they send and reads what the node answers."""

from peer.core.contract import Message, Publish, Send, SendEach, Subscribe, Unsubscribe, message_id
from peer.core.frames import Data, Frame, Subscriptions
from peer.protocols.gossipsub.frames import Advert, Graft, Idontwant, Ihave, Iwant, Prune, Pruned
from peer.protocols.gossipsub.mesh import DECAY, HEARTBEAT
from peer.protocols.registry import Composition, compose
from peer.testing import Solo, connects, deliveries, disconnects, traces

SECOND_NS = 1_000_000_000
ME = 1000
"""The node under test; its peers are numbered from 0."""


class LoneNode(Solo):
    """A node with scripted peers. Time passes only by ``wait`` and ``beat``.

    Args:
        topics: the node's subscriptions.
        known: the nodes that the bootstrap names, each with its topics.
        parameters: of the section ``[gossipsub]``; no connection is opened unless they say so.
    """

    def __init__(self, topics=(0,), known=None, seed=1, **parameters) -> None:
        parameters = {"connections": 0, "heartbeat_spread": False} | parameters
        part = {"name": "gossipsub"} | parameters
        super().__init__(compose(ME, seed, tuple(topics), Composition(part, part, interests="announced-only")))
        self.interval_ns = round(parameters.get("heartbeat_interval_s", 1.0) * SECOND_NS)
        self._sequence = 0
        self.start(known or {})

    # ------------------------------------------------------------------------------------------- what happens to it

    def link(self, peers, topics=(0,), outbound=True, graft=False) -> None:
        """Peers on these topics come up; ``graft``: they graft this node for all of them."""
        for peer in [peers] if isinstance(peers, int) else peers:
            self.link_up(peer, outbound)
            self.receive(peer, Subscriptions(tuple(topics)))
            if graft:
                self.receive(peer, Graft(tuple(topics)))
        self.forget_frames()

    def unlink(self, peer: int) -> None:
        self.link_down(peer, "test")

    def graft(self, peer: int, topic=0) -> None:
        self.receive(peer, Graft((topic,)))

    def prune(self, peer: int, topic=0, backoff_s=60, peers=()) -> None:
        self.receive(peer, Prune((Pruned(topic, round(backoff_s * 1000), tuple(peers)),)))

    def message(self, peer: int, sequence: int, topics=(0,), publisher=500, size=1) -> int:
        """A peer sends a message of a far node's, with a payload of this size."""
        identifier = message_id(publisher, sequence)
        self.receive(peer, Data(identifier, tuple(topics), 2, 255, b"x" * size))
        return identifier

    def advertise(self, peer: int, *message_ids: int, topic=0) -> None:
        self.receive(peer, Ihave((Advert(topic, message_ids),)))

    def request(self, peer: int, *message_ids: int) -> None:
        self.receive(peer, Iwant(message_ids))

    def refuse(self, peer: int, *message_ids: int) -> None:
        """A peer says that it does not want these messages."""
        self.receive(peer, Idontwant(message_ids))

    def publish(self, *topics: int) -> int:
        self._sequence += 1
        identifier = message_id(ME, self._sequence)
        self.give(Publish(topics or (0,), identifier, b"y"))
        return identifier

    def subscribe(self, topic: int) -> None:
        self.give(Subscribe(topic))

    def unsubscribe(self, topic: int) -> None:
        self.give(Unsubscribe(topic))

    def wait(self, seconds: float) -> None:
        """Time passes without a heartbeat."""
        self.now_ns += round(seconds * SECOND_NS)

    def beat(self, times: int = 1) -> None:
        """An interval passes and the heartbeat comes, so many times."""
        for _ in range(times):
            self.now_ns += self.interval_ns
            self.fire(HEARTBEAT)

    def decay(self, times: int = 1) -> None:
        for _ in range(times):
            self.fire(DECAY)

    # ------------------------------------------------------------------------------------------------ what one reads

    @property
    def overlay(self):
        return self.part("overlay")

    @property
    def frames(self) -> list[tuple[int, Frame]]:
        return self.sent(Frame)

    def forget_frames(self) -> None:
        """Forget what the node sent, and keep its other effects."""
        self.effects = [effect for effect in self.effects if not isinstance(effect, Send | SendEach)]

    def mesh(self, topic=0) -> list[int]:
        return sorted(self.overlay.peers[topic])

    def score(self, peer: int) -> float:
        return self.overlay.scores.of(peer)

    def receivers(self, kind: type[Frame]) -> list[int]:
        return sorted(peer for peer, _ in self.sent(kind))

    def connects(self) -> list[int]:
        return sorted(connects(self.effects))

    def disconnects(self) -> list[int]:
        return sorted(peer for peer, _ in disconnects(self.effects))

    def delivered(self) -> list[Message]:
        return deliveries(self.effects)

    def rejects(self) -> list[str]:
        return [event.reason for event in traces(self.effects) if event.event == "reject"]
