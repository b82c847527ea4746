"""Limits the connections that are not links: those that have not said hello, were refused, or are closing."""

from collections import Counter

from peer.runtime.addresses import AddressBook
from peer.runtime.link import Link

MOST_PER_NODE = 8
"""Connections for each node at an address. An honest node has one under way, and for a moment those that it closes."""

STRANGE_ADDRESS, TOO_MANY = "strange_address", "too_many_connections"


class Admission:
    """The accepted connections that are not up, counted by the address that they come from.

    Args:
        book: the nodes' addresses.
    """

    def __init__(self, book: AddressBook) -> None:
        self._book = book
        self._links: set[Link] = set()
        self._from: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._from.total()

    def objection(self, link: Link) -> str | None:
        """Why a connection is not taken at all; None where it is."""
        nodes = self._book.count_nodes_at(link.source)
        if not nodes:
            return STRANGE_ADDRESS
        return TOO_MANY if self._from[link.source] >= MOST_PER_NODE * nodes else None

    def add(self, link: Link) -> None:
        """An accepted connection is there, or is up no more."""
        if not link.opener and link not in self._links:
            self._links.add(link)
            self._from[link.source] += 1

    def remove(self, link: Link) -> None:
        if link in self._links:
            self._links.remove(link)
            self._from[link.source] -= 1
            if not self._from[link.source]:
                del self._from[link.source]
