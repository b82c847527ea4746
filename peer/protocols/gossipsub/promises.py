"""Promises: messages that a peer advertised, that it was asked for, and that must come in time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from peer.core.contract import MessageId, NodeId


class Promises:
    """One message of each request is followed up, drawn at random; whoever delivers it fulfils every promise of it.

    Source: gossipsub v1.1, Spam Protection Measures.
    """

    def __init__(self, followup_ns: int, draws: Random) -> None:
        self._followup_ns = followup_ns
        self._draws = draws
        self._due_ns: dict[MessageId, dict[NodeId, int]] = {}

    def add(self, now_ns: int, peer: NodeId, asked: Sequence[MessageId]) -> None:
        """The peer was asked for these messages (at least one)."""
        due_ns = self._due_ns.setdefault(self._draws.choice(asked), {})
        due_ns.setdefault(peer, now_ns + self._followup_ns)

    def fulfil(self, message_id: MessageId) -> None:
        """The message came, from whomever."""
        self._due_ns.pop(message_id, None)

    def take_broken(self, now_ns: int) -> dict[NodeId, int]:
        """The peers whose promises are overdue, with how many; those are forgotten here."""
        broken: dict[NodeId, int] = {}
        for message_id, due_ns in list(self._due_ns.items()):
            for peer in [peer for peer, until_ns in due_ns.items() if until_ns < now_ns]:
                broken[peer] = broken.get(peer, 0) + 1
                del due_ns[peer]
            if not due_ns:
                del self._due_ns[message_id]
        return broken
