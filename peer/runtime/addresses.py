"""The addresses of a run's nodes: at which they listen, and from which their connections come."""

import socket
from collections import Counter

from peer.core.contract import NodeId

Address = tuple[str, int]


class AddressBook:
    """The address at which every node of the run listens. Its connections come from the same address, at any port.

    Several nodes may share an address. A name means every IPv4 address that it has now; a name that cannot be resolved
    means none.

    Args:
        addresses: (address, port) of each node, indexed by node.
    """

    def __init__(self, addresses: tuple[Address, ...]) -> None:
        self._addresses = addresses
        self._sources = {host: _resolve(host) for host, _ in addresses}
        self._nodes_at = Counter(source for host, _ in addresses for source in self._sources[host])

    def __len__(self) -> int:
        return len(self._addresses)

    def __getitem__(self, node: NodeId) -> Address:
        return self._addresses[node]

    def is_source_of(self, node: NodeId, source: str) -> bool:
        """Return whether a connection from an address may be a node's; False if there is no such node."""
        return 0 <= node < len(self) and source in self._sources[self._addresses[node][0]]

    def count_nodes_at(self, source: str) -> int:
        """Return how many nodes a connection from an address may belong to."""
        return self._nodes_at[source]


def _resolve(host: str) -> frozenset[str]:
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)
