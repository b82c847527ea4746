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
    """Opens ``degree`` links to nodes drawn uniformly from the candidates, and accepts any number of incoming links.

    After the driver gave up a link, the node draws a replacement. It does not draw the lost node again for some time.

    Source: Topiary section II-A (outgoing links); GossipSub's and Bitcoin's random connections are of this kind.
    """

    Parameters = RandomParameters

    def __init__(self, state: State, membership: Membership, parameters: RandomParameters) -> None:
        super().__init__(state)
        self.links = OutgoingLinks(state, membership, parameters.degree)

    def meet(self, turn: Turn, directory: Directory) -> None:
        self.links.fill(turn)

    def link_down(self, turn: Turn, peer: NodeId, reason: str, retrying: bool) -> None:
        """Replace a chosen node that the driver does not redial."""
        self.links.link_down(turn, peer, retrying)

    def fire(self, turn: Turn, name: str) -> None:
        """Choose missing nodes, also from those that could not be reached or that the membership found since."""
        self.links.try_again(turn)
