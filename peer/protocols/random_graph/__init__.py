"""The random overlay: every node opens a fixed number of links to nodes drawn uniformly.

Incoming links are not limited, so a node has about twice as many links on average. With a few outgoing links per node
the graph is connected with high probability. The overlay ignores topics, so messages reach their subscribers through
relays, too (``peer.core.dissemination.flood``).
"""

from peer.protocols.description import Composition, Description, ParameterError
from peer.protocols.random_graph.overlay import RandomGraph, RandomParameters


def check_degree(parameters: RandomParameters, nodes: int) -> None:
    """Raise an exception if nodes open more links than there are other nodes.

    Raises:
        ParameterError: ``degree`` is too large.
    """
    if parameters.degree >= nodes:
        raise ParameterError("degree", f"expected fewer than the {nodes} hosts, got {parameters.degree}")


PROTOCOL = Description(
    name="random",
    composition=Composition(overlay={"name": "random"}),
    parts={"overlay": RandomGraph},
    parameters=RandomParameters,
    check=check_degree,
)
