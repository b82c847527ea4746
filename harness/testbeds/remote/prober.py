"""Measures round trips between machines. Every machine's Python runs the text of this file.

The first line of standard input has the ``secret`` of the run, the ``port`` and the machine's own ``addresses``, as
JSON. The prober listens there (UDP) and prints a line. From then on it answers the requests of other machines' probers.
Each further line asks for an exchange: ``pairs`` (own address, other address), ``due_ns`` (when to send each request,
from now on, ascending) and ``grace_ns`` (how long to wait for answers after the last one). The answer has ``sent_ns``
(real time since the epoch) and ``rtt_ns`` of each request; 0 = not sent, not answered. An empty line ends the sending
early. The prober ends with its standard input.

The kernel notes when a packet arrives. A request is answered by a process, and the answer says how long that took; this
time is subtracted. So a round trip has the time on the network and in both kernels, not the wait for a processor.

The file uses only the standard library.
"""

import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any

PACKET = struct.Struct(">16sBIQQ")
"""Secret, whether it is an answer, number of the request, when the request arrived, when the answer left (ns)."""

REQUEST, ANSWER = 0, 1
SO_TIMESTAMPNS = 35
TIMESPEC = struct.Struct("@qq")
BUFFER_BYTES = 1 << 20
LONGEST_WAIT_MS = 1000


class Exchange:
    """The requests of a line of standard input, and what became of them."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.pairs, self.due_ns, self.grace_ns = asked["pairs"], asked["due_ns"], asked["grace_ns"]
        self.sent_ns, self.rtt_ns = [0] * len(self.pairs), [0] * len(self.pairs)
        self.begun_ns = self.last_ns = time.monotonic_ns()
        self.following = self.answered = 0

    @property
    def next_ns(self) -> int:
        """The instant of CLOCK_MONOTONIC at which something is to be done unless an answer comes."""
        if self.following < len(self.pairs):
            return int(self.begun_ns + self.due_ns[self.following])
        return int(self.last_ns + self.grace_ns)

    @property
    def is_over(self) -> bool:
        """Whether every request is answered, or has had the time for it."""
        return self.following >= len(self.pairs) and (
            self.answered >= self.following or time.monotonic_ns() >= self.next_ns
        )

    def stop(self) -> None:
        """Send no more requests."""
        self.pairs = self.pairs[: self.following]


class Prober:
    """The sockets of a machine's addresses."""

    def __init__(self, secret: bytes, port: int, addresses: list[str]) -> None:
        self._secret, self._port = secret, port
        self._sockets = {address: listen(address, port) for address in addresses}
        self._by_descriptor = {opened.fileno(): opened for opened in self._sockets.values()}
        self._places: dict[str, Any] = {}
        self._exchange: Exchange | None = None
        self._unread = b""

    def serve(self) -> None:
        """Answer and ask until the end of standard input."""
        poll = select.poll()
        for descriptor in (0, *self._by_descriptor):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll(self._wait_ms()):
                if descriptor == 0 and not self._hear():
                    return
                if descriptor in self._by_descriptor:
                    self._receive(self._by_descriptor[descriptor])
            self._send_due()

    def _wait_ms(self) -> int:
        if self._exchange is None:
            return LONGEST_WAIT_MS
        return max(0, min((self._exchange.next_ns - time.monotonic_ns()) // 1_000_000, LONGEST_WAIT_MS))

    def _hear(self) -> bool:
        """Read standard input; return whether it goes on."""
        chunk = os.read(0, 1 << 20)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            if line:
                self._exchange = Exchange(json.loads(line))
            elif self._exchange is not None:
                self._exchange.stop()
        return bool(chunk)

    def _send_due(self) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        while exchange.following < len(exchange.pairs) and exchange.next_ns <= time.monotonic_ns():
            self._ask(exchange)
        if exchange.is_over:
            self._exchange = None
            sys.stdout.write(json.dumps({"sent_ns": exchange.sent_ns, "rtt_ns": exchange.rtt_ns}) + "\n")
            sys.stdout.flush()

    def _ask(self, exchange: Exchange) -> None:
        number, (source, destination) = exchange.following, exchange.pairs[exchange.following]
        exchange.following += 1
        packet = PACKET.pack(self._secret, REQUEST, number, 0, 0)
        place = self._place(destination)
        exchange.sent_ns[number], exchange.last_ns = time.time_ns(), time.monotonic_ns()
        try:
            self._sockets[source].sendto(packet, place)
        except OSError:
            return  # the network is unreachable: the request counts as lost

    def _place(self, address: str) -> Any:  # noqa: ANN401 - a socket address
        if address not in self._places:
            self._places[address] = socket.getaddrinfo(address, self._port, type=socket.SOCK_DGRAM)[0][4]
        return self._places[address]

    def _receive(self, opened: socket.socket) -> None:
        try:
            data, ancillary, _, sender = opened.recvmsg(PACKET.size + 1, 64)
        except OSError:
            return  # nothing is there, or an earlier packet was refused
        if len(data) != PACKET.size or not ancillary:
            return
        secret, kind, number, arrived_ns, left_ns = PACKET.unpack(data)
        seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2])
        here_ns = seconds * 1_000_000_000 + nanoseconds
        if secret != self._secret:
            return
        if kind == ANSWER:
            self._note(number, here_ns, left_ns - arrived_ns)
            return
        try:
            opened.sendto(PACKET.pack(self._secret, ANSWER, number, here_ns, time.time_ns()), sender)
        except OSError:
            return  # the asker counts it as lost

    def _note(self, number: int, here_ns: int, taken_ns: int) -> None:
        """Note an answer. One that a set clock makes negative counts as lost."""
        exchange = self._exchange
        if exchange is None or number >= exchange.following or exchange.rtt_ns[number]:
            return  # of an earlier exchange, or twice
        exchange.answered += 1
        exchange.rtt_ns[number] = max(0, here_ns - exchange.sent_ns[number] - taken_ns)


def listen(address: str, port: int) -> socket.socket:
    """Return a UDP socket that notes when packets arrive."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        opened = socket.socket(family, kind)
        opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        opened.bind(place)
    except OSError as error:
        sys.exit(f"cannot listen on UDP {address}:{port}: {error.strerror or error}")
    opened.setblocking(False)
    return opened


def main() -> None:
    """Read who this is, and serve."""
    said = json.loads(sys.stdin.buffer.readline())  # nothing follows before the answer, so nothing more is buffered
    prober = Prober(bytes.fromhex(said["secret"]), said["port"], said["addresses"])
    print("ready", flush=True)
    prober.serve()


if __name__ == "__main__":
    main()
