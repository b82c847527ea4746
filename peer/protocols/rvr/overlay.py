"""RVR: a tree per topic, which consists of the relay paths of all its subscribers."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Meta

from peer.core.contract import NodeId, TopicId
from peer.core.frames import Frame
from peer.core.membership.interface import Membership
from peer.core.parts import State, Turn
from peer.protocols.description import Choice, FirstNetwork
from peer.protocols.tman.contacts import find_ring_contacts
from peer.protocols.tman.frames import Profile
from peer.protocols.tman.overlay import NOTHING, Topics
from peer.protocols.tman.parameters import RingParameters
from peer.protocols.tman.relaying import RelayingOverlay
from peer.protocols.tman.ring import RingOrder
from peer.protocols.tman.selection import RING_LINKS


class RvrParameters(RingParameters, forbid_unknown_fields=True, frozen=True):
    """A navigable overlay and a tree per topic."""

    table_size: Annotated[int, Meta(ge=3, le=1000)] = 15
    """Entries of the routing table: predecessor, successor and small-world neighbours."""


class PlacedRvrParameters(RvrParameters, forbid_unknown_fields=True, frozen=True):
    """The parameters with those that the plan gives every node."""

    contacts: tuple[NodeId, ...] = ()
    """Nodes that this one knows at first, besides those that the bootstrap service and peer sampling name."""


class Rvr(RelayingOverlay):
    """Routes to the rendezvous node of each topic that it subscribes to. The union of these paths is the topic's tree.

    The routing table does not depend on subscriptions, and nodes tell their subscriptions only to the next node on the
    way.

    Source: Vitis section IV (RVR).
    """

    Parameters = PlacedRvrParameters
    frames = (*RelayingOverlay.frames, Profile)

    def __init__(self, state: State, membership: Membership, parameters: PlacedRvrParameters) -> None:
        super().__init__(state, membership, parameters, parameters.table_size - RING_LINKS, parameters.contacts)
        self._profile = Profile(NOTHING, ())

    def select(self, pool: Mapping[NodeId, Topics]) -> Iterable[NodeId]:
        return self.world.choose(RingOrder(pool))

    def narrow(self, candidates: Mapping[NodeId, Topics]) -> dict[NodeId, Topics]:
        return {node: topics for node, topics in candidates.items() if self.world.would_choose(node)}

    def make_profile(self, turn: Turn) -> Frame:
        """Return the profile. An unchanged profile is the same object."""
        if self._profile.ring != self.world.ring:
            self._profile = Profile(NOTHING, self.world.ring)
        return self._profile

    def introduce(self, turn: Turn) -> Frame:
        return self._profile

    def gateways(self) -> Iterable[TopicId]:
        return sorted(self.state.topics)

    def subscribe(self, turn: Turn, topic: TopicId) -> None:
        self.ask_for_relays(turn, (topic,))


def draw_initial_state(network: FirstNetwork, parameters: RvrParameters) -> list[Choice]:
    """Return the contacts of each node at the start (``PlacedRvrParameters``); none unless the start is converged."""
    nodes = len(network.interests)
    if parameters.start == "random":
        return [{}] * nodes
    return [{"contacts": contacts} for contacts in find_ring_contacts(nodes)]
