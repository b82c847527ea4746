"""ICMP echo from many network namespaces by one process.

A raw ICMP socket is opened inside every host's namespace; the hosts' kernels answer. The receive instant is the
kernel's (SO_TIMESTAMPNS), and the send instant is read right before the system call, so that slow reading of sockets
does not make the measurement less exact. A reply is identified by its index and by the socket that received it.
"""

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from harness.errors import TestbedError
from harness.machine.netns import entered

PACKET_BYTES = 84
"""Length of an echo request: the IPv4 header (20), the ICMP header (8) and ping's usual 56 bytes."""

AWAKE_NS = 60_000
"""Between requests that are at most this far apart the process does not sleep."""

_ECHO = struct.Struct(">BBHHHII48x")
_SOL_RAW, _ICMP_FILTER, _ONLY_REPLIES = 255, 1, 0xFFFFFFFF ^ 1
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_RECEIVE_BUFFER_BYTES = 1 << 20

Instants = npt.NDArray[np.int64]


class EchoSockets:
    """One raw ICMP socket per host; index = number of the host."""

    def __init__(self, netns: Sequence[str], addresses: Sequence[str]) -> None:
        """Open the sockets.

        Args:
            netns: the hosts' network namespaces as paths.
            addresses: the hosts' addresses on the emulated network.

        Raises:
            TestbedError: a namespace or a raw socket was refused.
        """
        self._nonce = int.from_bytes(os.urandom(4))
        self._addresses = [(address, 0) for address in addresses]
        self._sockets = [_open_socket(path) for path in netns]
        self._poll = select.epoll()
        self._host_of = {opened.fileno(): host for host, opened in enumerate(self._sockets)}
        for descriptor in self._host_of:
            self._poll.register(descriptor, select.EPOLLIN)

    def exchange(
        self,
        pairs: Sequence[tuple[int, int]],
        due_ns: Instants,
        grace_ns: int,
        stopped: Callable[[], bool] = lambda: False,
    ) -> tuple[Instants, Instants]:
        """Send echo requests at their instants and collect the replies.

        Args:
            pairs: (source, destination) of each request.
            due_ns: when to send each, in ns from now, ascending.
            grace_ns: how long to wait for replies after the last request.
            stopped: called about every 50 ms; true = send no more requests.

        Returns:
            The sending and the receiving instants, ns of CLOCK_REALTIME; 0 = not sent, lost.
        """
        sent, received = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int64)
        start = time.monotonic_ns()
        following, outstanding, last_ns = 0, 0, start
        while following < len(pairs) or outstanding:
            now = time.monotonic_ns()
            while following < len(pairs) and due_ns[following] <= now - start:
                sent[following] = self._send(following, *pairs[following])
                following += 1
                outstanding += 1
                last_ns = now
            if following == len(pairs) and now - last_ns > grace_ns:
                break
            until_ns = int(due_ns[following] if following < len(pairs) else grace_ns) + start - now
            # epoll waits for whole milliseconds: for a request that is due sooner, wait busily.
            for descriptor, _ in self._poll.poll(min(until_ns / 1e9, 0.05) if until_ns > AWAKE_NS else 0):
                outstanding -= self._receive(descriptor, pairs, received)
            if stopped():
                pairs = pairs[:following]
        return sent, received

    def _send(self, index: int, source: int, destination: int) -> int:
        packet = make_request(self._nonce, index)
        now = time.time_ns()
        try:
            self._sockets[source].sendto(packet, self._addresses[destination])
        except OSError:
            return now  # the device is full: the probe counts as lost
        return now

    def _receive(self, descriptor: int, pairs: Sequence[tuple[int, int]], received: Instants) -> int:
        """Read a socket, and return the number of expected replies."""
        host = self._host_of[descriptor]
        counted = 0
        while True:
            try:
                data, ancillary, _, _ = self._sockets[host].recvmsg(256, 64)
            except BlockingIOError:
                return counted
            *_, nonce, index = _ECHO.unpack_from(data, 20)
            known = nonce == self._nonce and index < len(pairs) and pairs[index][0] == host
            if known and not received[index]:
                seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
                received[index] = seconds * 1_000_000_000 + nanoseconds
                counted += 1


def make_request(nonce: int, index: int) -> bytes:
    """Return an echo request with its index and checksum (RFC 1071)."""
    words = 0x0800 + (nonce >> 16) + (nonce & 0xFFFF) + (index >> 16) + (index & 0xFFFF)
    words = (words & 0xFFFF) + (words >> 16)
    words = (words & 0xFFFF) + (words >> 16)
    return _ECHO.pack(8, 0, words ^ 0xFFFF, 0, 0, nonce, index)


def _open_socket(path: str) -> socket.socket:
    """Open a raw ICMP socket in the namespace."""
    try:
        namespace = os.open(path, os.O_RDONLY)
        try:
            with entered(namespace):
                opened = socket.socket(socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMP)
        finally:
            os.close(namespace)
    except OSError as error:
        raise TestbedError(f"open a raw ICMP socket in {path}", error.strerror or str(error)) from error
    opened.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("=I", _ONLY_REPLIES))
    opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    return opened
