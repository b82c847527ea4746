"""What lies around a neighbour maintenance task: its parameters, what it aims at, and the node that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from peer.core.bitset import Bitset
from peer.core.contract import NodeId, TopicId
from peer.core.membership.interface import Membership
from peer.core.node import Turn
from peer.protocols.spidercast.coverage import Interest

SECOND_NS = 1_000_000_000


class MaintenanceParameters(Struct, forbid_unknown_fields=True, frozen=True):
    """What both tasks of a node keep to."""

    margin: Annotated[int, Meta(ge=0)] = 5
    """Neighbours of a task that a node accepts beyond the task's upper limit."""
    connect_timeout_s: Annotated[float, Meta(gt=0)] = 1.0
    """Time between two rounds of a task, and how long a link and then the answer to a request may take."""
    heartbeat_s: Annotated[float, Meta(gt=0)] = 1.0
    """Time between two heartbeats to a neighbour."""
    suspect_after_s: Annotated[float, Meta(gt=0)] = 5.0
    """A neighbour that sent no heartbeat for so long is taken for failed."""
    quarantine_s: Annotated[float, Meta(ge=0)] = 10.0
    """How long a node is not asked again after it was asked to become a neighbour."""
    disconnect_from: Literal["covered", "over-target"] = "covered"
    """Which neighbours a node asks to part: those that have reached their target degree (the paper's text), or only
    those above it (its Figure 3, line 9), by which hardly a link is ever given up."""


class Aim(Protocol):
    """What a task wants to reach with its neighbours."""

    @property
    def wanted(self) -> bool:
        """Whether the task is to run at all (Figure 2, line 3)."""
        ...

    @property
    def limit(self) -> int:
        """L_max: from so many neighbours on the task asks for no more."""
        ...

    def recount(self, own: Interest, neighbours: Iterable[Interest]) -> None:
        """Begin anew with this interest and these neighbours."""
        ...

    def add(self, interest: Interest) -> None:
        """A neighbour more."""
        ...

    def remove(self, interest: Interest) -> None:
        """A neighbour less."""
        ...

    def missing(self, gone: Sequence[Interest] = ()) -> int:
        """How far from the aim the neighbours without those in ``gone`` are; 0 = reached."""
        ...

    def gains_by(self, interest: Interest) -> bool:
        """Whether a neighbour with this interest would bring the aim nearer."""
        ...

    def critical(self, gone: Sequence[Interest] = ()) -> Interest:
        """The topics that count as missing as soon as any neighbour with an interest in them goes too."""
        ...

    def next_node(self, membership: Membership, among: Bitset, draws: Random) -> NodeId | None:
        """The node of ``among`` to ask next."""
        ...


class Host(Protocol):
    """The node around its tasks."""

    membership: Membership
    draws: Random

    @property
    def node(self) -> NodeId:
        """The node's number."""
        ...

    def may_be_node(self, number: int) -> bool:
        """Whether a number that a remote node names can be a node's."""
        ...

    @property
    def interest(self) -> tuple[TopicId, ...]:
        """The node's own interest, rising."""
        ...

    @property
    def version(self) -> int:
        """How often it changed."""
        ...

    def reach(self, turn: Turn, peer: NodeId) -> bool:
        """Whether there is a link to the peer; if not, ask for one: ``Task.link_up`` follows, or ``link_down``."""
        ...

    def is_closing(self, peer: NodeId) -> bool:
        """Whether a link to the peer is about to end: neither ask nor tell it anything."""
        ...

    def release(self, turn: Turn, peer: NodeId, reason: str, parted: bool = False) -> None:
        """Close the link to the peer if nothing needs it; ``parted``: the other side needs it no more either."""
        ...

    def changed(self, turn: Turn, peer: NodeId, reason: str) -> None:
        """The peer has become a neighbour of a task, or is one no more."""
        ...
