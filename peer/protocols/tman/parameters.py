"""The parameters of every overlay that T-Man makes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class TManParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """Routing tables that nodes exchange."""

    period_s: Annotated[float, Meta(gt=0, le=3600)] = 1.0
    """delta t: time between two rounds of a node; in each it exchanges tables with one neighbour and sends its profile
    to all."""
    age_limit: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Rounds without a profile after which a neighbour counts as failed."""


class RingParameters(TManParameters, forbid_unknown_fields=True, frozen=True):
    """Routing tables with a navigable ring."""

    start: Literal["random", "converged"] = "random"
    """The nodes that a node knows at the start. ``random``: those that the bootstrap service and peer sampling name.
    ``converged``: also those that rounds would find, for runs that measure the overlay at rest: its neighbours on the
    ring, some nodes at every distance, and those with the highest utility. The node chooses its neighbours from them
    itself. Later instances know the same nodes."""

    nodes: Annotated[int, Meta(ge=2)] | None = None
    """Number of nodes from which small-world distances are drawn; without it, each node estimates it from its distance
    to its neighbours on the ring."""
