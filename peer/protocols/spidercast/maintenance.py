"""The parameters of a neighbour maintenance task, and the interface of its aim."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from peer.core.bitset import Bitset
from peer.core.contract import NodeId
from peer.core.membership.interface import Membership
from peer.protocols.spidercast.coverage import Interest

SECOND_NS = 1_000_000_000


class MaintenanceParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """The parameters of both tasks of a node."""

    margin: Annotated[int, Meta(ge=0)] = 5
    """Neighbours of a task that a node accepts beyond the task's upper limit."""
    connect_timeout_s: Annotated[float, Meta(ge=0.001, le=604_800)] = 1.0
    """Time between two rounds of a task, and the longest time for opening a link and for the answer to a request."""
    heartbeat_s: Annotated[float, Meta(ge=0.001, le=604_800)] = 1.0
    """Time between two heartbeats to a neighbour."""
    suspect_after_s: Annotated[float, Meta(ge=0.001, le=604_800)] = 5.0
    """A neighbour that sent no heartbeat for this long counts as failed."""
    quarantine_s: Annotated[float, Meta(ge=0)] = 10.0
    """Shortest time between two requests to the same node to become a neighbour."""
    disconnect_from: Literal["covered", "over-target"] = "covered"
    """Which neighbours a node asks to disconnect. ``covered``: those that have reached their target degree (the paper's
    text). ``over-target``: only those above it (its Figure 3, line 9), with which nodes rarely give up a link."""


class Aim(Protocol):
    """The aim of a task: which neighbours it needs."""

    @property
    def wanted(self) -> bool:
        """Whether the task runs at all (Figure 2, line 3)."""
        ...

    @property
    def limit(self) -> int:
        """L_max: a task with this many neighbours asks for no more."""
        ...

    def recount(self, own: Interest, neighbours: Iterable[Interest]) -> None:
        """Reset to this interest and these neighbours."""
        ...

    def add(self, interest: Interest) -> None:
        """Count the interest of a new neighbour."""
        ...

    def remove(self, interest: Interest) -> None:
        """Remove the interest of a former neighbour from the counts."""
        ...

    def missing(self, gone: Sequence[Interest] = ()) -> int:
        """Return how much is missing from the aim without the neighbours in ``gone``; 0 = reached."""
        ...

    def gains_by(self, interest: Interest) -> bool:
        """Return whether a neighbour with this interest would help to reach the aim."""
        ...

    def critical(self, gone: Sequence[Interest]) -> Interest:
        """Return the topics that would be missing without one more neighbour that shares them."""
        ...

    def next_node(self, membership: Membership, among: Bitset, draws: Random) -> NodeId | None:
        """Return the candidate to ask next; None = no candidate helps.

        Args:
            membership: names the subscribers of topics.
            among: the candidates.
            draws: the generator.
        """
        ...
