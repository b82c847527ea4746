"""A service on loopback that is lost for some seconds, from a request that a test chooses: connections are cut."""

import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import Self
from urllib.parse import urlsplit


class LostService:
    """Passes connections on to a service; a context manager, which ends with its block.

    Args:
        url: of the service.
        lost_s: for how long it is lost.

    Attributes:
        url: of this one.
        was_lost: whether it was.
    """

    def __init__(self, url: str, lost_s: float) -> None:
        parts = urlsplit(url)
        self._target = parts.hostname or "", parts.port or 80
        self._lost_s = lost_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._begin: bytes | None = None
        self._back_s = 0.0
        self._open: set[socket.socket] = set()
        self.was_lost = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()
        self._cut()

    def lose_at(self, request: bytes) -> None:
        """Be lost from the next request on that begins so."""
        self._begin = request

    def await_back(self) -> None:
        """Wait until it is back."""
        while self._is_lost():
            time.sleep(0.1)

    def _is_lost(self) -> bool:
        return time.monotonic() < self._back_s

    def _cut(self) -> None:
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with ExitStack() as stack:
            stack.enter_context(client)
            if self._is_lost():
                return
            server = stack.enter_context(socket.create_connection(self._target))
            self._open |= {client, server}
            back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
            back.start()
            self._copy(client, server)
            back.join()
            self._open -= {client, server}

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self._begin is not None and data.startswith(self._begin):
                    self._begin, self._back_s, self.was_lost = None, time.monotonic() + self._lost_s, True
                    self._cut()
                    return
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
