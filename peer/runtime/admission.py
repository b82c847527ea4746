"""Limits the connections that are not links: those without a ``Hello`` yet, refused ones, and closing ones."""

from collections import Counter

from peer.runtime.addresses import AddressBook
from peer.runtime.tcp_connection import TcpConnection

MOST_PER_NODE = 8
"""Most such connections per node at an address. An honest node has one attempt, and some that are just closing."""

STRANGE_ADDRESS, TOO_MANY = "strange_address", "too_many_connections"


class Admission:
    """The accepted connections that are not links, counted by the address that they come from.

    Args:
        book: the nodes' addresses.
    """

    def __init__(self, book: AddressBook) -> None:
        self._book = book
        self._connections: set[TcpConnection] = set()
        self._from: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._from.total()

    def objection(self, connection: TcpConnection) -> str | None:
        """Return why to abort a connection at once; None = accept it."""
        nodes = self._book.count_nodes_at(connection.source)
        if not nodes:
            return STRANGE_ADDRESS
        return TOO_MANY if self._from[connection.source] >= MOST_PER_NODE * nodes else None

    def add(self, connection: TcpConnection) -> None:
        """Count an accepted connection that is not a link, or not any more. Do nothing for opened connections."""
        if not connection.opener and connection not in self._connections:
            self._connections.add(connection)
            self._from[connection.source] += 1

    def remove(self, connection: TcpConnection) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._from[connection.source] -= 1
            if not self._from[connection.source]:
                del self._from[connection.source]
