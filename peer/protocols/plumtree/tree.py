"""Plumtree's state of a node in a swarm: eager and lazy links, and announced messages that have not arrived."""

from typing import Any

from peer.core.contract import MessageId, NodeId
from peer.protocols.plumtree.frames import Advert

MOST_ANNOUNCED = 1000
"""Most missing messages that a neighbour has announced. The node ignores more announcements."""


class Tree:
    """A node's place in the tree of a swarm.

    Every neighbour is either eager (the node sends it messages) or lazy (the node sends it announcements).

    Attributes:
        eager: the eager neighbours, in the order in which they became eager.
        lazy: the lazy neighbours, in the order in which they became lazy.
        queued: announcements that wait to be sent, by neighbour.
        missing: message -> the neighbours that announced it and were not asked for it yet, with the hops of their
            copies, in the order of their announcements. A message stays here as long as its timer runs, even if no
            neighbour is left to ask.
    """

    __slots__ = ("_announced", "eager", "lazy", "missing", "queued")

    def __init__(self) -> None:
        self.eager: dict[NodeId, None] = {}
        self.lazy: dict[NodeId, None] = {}
        self.queued: dict[NodeId, list[Advert]] = {}
        self.missing: dict[MessageId, dict[NodeId, int]] = {}
        self._announced: dict[NodeId, int] = {}

    def __contains__(self, peer: NodeId) -> bool:
        return peer in self.eager or peer in self.lazy

    def promote(self, peer: NodeId) -> None:
        """Make the link to a neighbour eager; the neighbour may be new."""
        self.lazy.pop(peer, None)
        self.eager[peer] = None

    def demote(self, peer: NodeId) -> None:
        self.eager.pop(peer, None)
        self.lazy[peer] = None

    def drop(self, peer: NodeId) -> None:
        """Forget a former neighbour and its announcements."""
        held: tuple[dict[NodeId, Any], ...] = (self.eager, self.lazy, self.queued, self._announced)
        for peers in (*held, *self.missing.values()):
            peers.pop(peer, None)

    def note(self, peer: NodeId, advert: Advert) -> bool:
        """Note that a neighbour has a message that this node does not have.

        Returns:
            Whether the message was not known to be missing.
        """
        announced = self._announced.get(peer, 0)
        if announced >= MOST_ANNOUNCED:
            return False
        is_new = advert.message_id not in self.missing
        announcers = self.missing.setdefault(advert.message_id, {})
        if peer not in announcers:
            announcers[peer] = advert.hops
            self._announced[peer] = announced + 1
        return is_new

    def next_announcer(self, identifier: MessageId) -> NodeId | None:
        """Remove and return the first of the neighbours to ask for a missing message; None = none is left."""
        announcers = self.missing.get(identifier)
        if not announcers:
            return None
        peer = next(iter(announcers))
        del announcers[peer]
        self._announced[peer] -= 1
        return peer

    def forget(self, identifier: MessageId) -> dict[NodeId, int] | None:
        """Remove a message that arrived or was given up.

        Returns:
            The neighbours that announced it and were not asked for it, with the hops of their copies; None = it was
            not known to be missing.
        """
        announcers = self.missing.pop(identifier, None)
        for peer in announcers or ():
            self._announced[peer] -= 1
        return announcers
