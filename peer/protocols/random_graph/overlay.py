"""The random overlay: a fixed number of outgoing links to nodes drawn uniformly."""

from typing import Annotated

from msgspec import Meta, Struct

from peer.core.contract import Directory, NodeId
from peer.core.membership.interface import Membership
from peer.core.outgoing import OutgoingLinks
from peer.core.parts import Part, State, Turn


class RandomParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The random overlay: links to nodes drawn uniformly."""

    degree: Annotated[int, Meta(ge=1)] = 5
    """Links that a node opens; incoming links are not limited."""


class RandomGraph(Part):
    """Opens ``degree`` links to nodes drawn uniformly from the candidates, and takes any number of incoming ones.

    A link that the driver gave up is replaced by another draw, and its node is not drawn again for a while.

    Source: Topiary section II-A (outgoing links); GossipSub's and Bitcoin's random connections are of this kind.
    """

    Parameters = RandomParameters

    def __init__(self, state: State, membership: Membership, parameters: RandomParameters) -> None:
        super().__init__(state)
        self.links = OutgoingLinks(state, membership, parameters.degree)

    def meet(self, turn: Turn, directory: Directory) -> None:
        self.links.fill(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Replace a chosen node that the driver no longer tries to reach."""
        self.links.link_down(turn, peer, retrying)

    def fire(self, turn: Turn, name: str) -> None:
        """Give the nodes that could not be reached another chance, and those that the membership found since."""
        self.links.try_again(turn)
