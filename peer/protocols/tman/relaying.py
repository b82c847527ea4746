"""Overlays with relay paths over T-Man's navigable ring: which topics a node forwards over which link."""

from collections.abc import Iterable

from peer.core.contract import NodeId, Publish, TopicId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.tman.frames import Profile
from peer.protocols.tman.overlay import NOTHING, TMan
from peer.protocols.tman.parameters import RingParameters
from peer.protocols.tman.rendezvous import HANDOVER_ROUNDS, RelayPaths, RelayRequest
from peer.protocols.tman.selection import SmallWorld


class RelayingOverlay(TMan):
    """Forwards topics along relay paths, and to the neighbours that a subclass chooses.

    A node forwards messages on a topic in both directions of each of its relay paths, except to the node that they came
    from. A node that stops being the gateway of a topic keeps its path for ``HANDOVER_ROUNDS``, since the next
    gateway's path may not exist yet. A node that publishes on a topic for which it has no receivers becomes a gateway
    of it for as many rounds as it keeps a silent neighbour.

    Attributes:
        world: chooses the ring and small-world neighbours.
        relays: the relay paths.
    """

    frames = (*TMan.frames, RelayRequest)
    writes = TMan.writes | {"directs"}

    def __init__(
        self,
        state: State,
        membership: Membership,
        parameters: RingParameters,
        long_links: int,
        contacts: tuple[NodeId, ...],
    ) -> None:
        super().__init__(state, membership, parameters, contacts)
        self.world = SmallWorld(state.node, long_links, self.draws, parameters.nodes)
        self.relays = RelayPaths(state, parameters.age_limit, self.retired)
        self._serves: dict[TopicId, int] = {}
        self._published: dict[TopicId, int] = {}
        self.write(directs=self._direct)

    def gateways(self) -> Iterable[TopicId]:
        """Return the topics of which this node is a gateway."""
        raise NotImplementedError

    def clustered(self, topic: TopicId) -> Iterable[NodeId]:
        """Return the neighbours to which this node forwards a topic besides those on relay paths."""
        return ()

    def refresh(self, turn: Turn) -> None:
        now = self.round
        for until_by_topic in (self._serves, self._published):
            for topic in [topic for topic, until in until_by_topic.items() if until <= now]:
                del until_by_topic[topic]
        self._serves.update(dict.fromkeys(self.gateways(), now + HANDOVER_ROUNDS))
        self.relays.refresh(turn, (*self._serves, *self._published))

    def publish(self, turn: Turn, publication: Publish) -> None:
        """Become a gateway of the message's topics for which this node knows no gateway."""
        for topic in publication.topics:
            if topic in self._published or not self.is_served(topic):
                self._published[topic] = self.round + self._age_limit
                self.ask_for_relays(turn, (topic,))

    def is_served(self, topic: TopicId) -> bool:
        """Return whether messages that this node publishes on a topic reach a gateway."""
        return bool(self.state.receivers(topic))

    def ask_for_relays(self, turn: Turn, topics: Iterable[TopicId]) -> None:
        """Become a gateway of more topics at once."""
        self.relays.request(turn, topics)

    def receive(self, turn: Turn, peer: NodeId, frame: Frame) -> None:
        if isinstance(frame, RelayRequest):
            self.relays.receive(turn, peer, frame)
        else:
            super().receive(turn, peer, frame)
            if isinstance(frame, Profile):
                self.take_hints(frame.ring)

    def take_hints(self, ring: tuple[NodeId, ...]) -> None:
        """Select again if a neighbour's ring neighbour should be one of this node's."""
        closer = [(node, NOTHING) for node in ring if self.state.may_be_node(node) and self.world.is_between(node)]
        fresh = self.find_strangers(closer)
        if fresh:
            self.adopt({**self.table, **self.told, **fresh}, {})

    def link_up(self, turn: Turn, peer: NodeId) -> None:
        self.relays.reroute()
        super().link_up(turn, peer)

    def retire(self, turn: Turn, peer: NodeId) -> None:
        self.relays.reroute()

    def resume(self, peer: NodeId) -> None:
        self.relays.reroute()

    def forget(self, turn: Turn, peer: NodeId) -> None:
        self.relays.link_down(turn, peer)

    def _direct(self, topic: TopicId) -> tuple[NodeId, ...]:
        """Return the neighbours to which this node forwards messages on a topic."""
        retired = [peer for peer, (_, topics) in self.retired.items() if topic in topics]
        return tuple(dict.fromkeys((*self.clustered(topic), *self.relays.receivers(topic), *retired)))
