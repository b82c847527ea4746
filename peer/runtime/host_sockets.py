"""Sockets in the network namespaces of hosts, for a process with the peers of several hosts.

A socket belongs to the namespace of the thread that made it, whichever thread uses it. A process with one peer is in
the namespace of the peer's host. A process with several has a thread for each further host: the thread enters the
host's namespace while the process may still do so, gives up all privileges, and then makes the sockets that it is asked
for. So the code of peers needs no privilege for sockets in other namespaces (ADR 0042).

Source: setns(2), network_namespaces(7).
"""

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from peer.runtime.namespaces import drop_privileges, enter_network

MakeSocket: TypeAlias = Callable[[], socket.socket]
"""Returns a new TCP socket in the network namespace of a certain host."""


def make_tcp_socket() -> socket.socket:
    """Return a new TCP socket in the network namespace of this thread."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def make_in_host(netns: str) -> MakeSocket:
    """Start a thread inside a host's network namespace, which lasts as long as this process.

    Args:
        netns: the path of the namespace.

    Returns:
        A function with which the thread makes a socket. The caller waits for it, some 0.1 ms.

    Raises:
        OSError: the thread may not enter the namespace, or there is none.
    """
    thread = ThreadPoolExecutor(1)
    thread.submit(_enter, netns).result()
    return lambda: thread.submit(make_tcp_socket).result()


def listen_at(address: tuple[str, int], backlog: int, make_socket: MakeSocket) -> socket.socket:
    """Return a socket that listens at an address of a host, as ``socket.create_server`` does for this process's host.

    Raises:
        OSError: the address cannot be listened at.
    """
    listener = make_socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def _enter(netns: str) -> None:
    enter_network(netns)
    drop_privileges()
