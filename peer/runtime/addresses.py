"""The addresses of a run's nodes: where they listen, and where their connections come from."""

import socket
from collections import Counter

from peer.core.contract import NodeId

Address = tuple[str, int]


class AddressBook:
    """Where every node of the run listens. Its connections come from the same address, at any port.

    Several nodes may share an address. A name stands for every IPv4 address that it has now; one that cannot be
    resolved, for none.

    Args:
        addresses: (address, port) of each node, index = node.
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
        """Whether a connection from an address may be that node's; False where there is no such node."""
        return 0 <= node < len(self) and source in self._sources[self._addresses[node][0]]

    def count_nodes_at(self, source: str) -> int:
        """How many nodes a connection from an address may belong to."""
        return self._nodes_at[source]


def _resolve(host: str) -> frozenset[str]:
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)
