"""The live page's server, with snapshots that a test gives it."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from harness.live import snapshot as live
from harness.live.server import Hub, make_app
from harness.stages.serving import Gate


class Server:
    """The live page's own server, in a thread, with snapshots that a test gives it.

    Attributes:
        logs: the log of each node's peer, by its number; may change at any time.
        address: with the token.
    """

    def __init__(self, stage: live.Stage, logs: Mapping[int, bytes]) -> None:
        self.logs = dict(logs)
        self._stage = stage
        self._gate = Gate()
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.start()
        self.address = self._gate.sign(f"http://127.0.0.1:{self._port}/")

    def start(self, *, with_token: bool = True) -> None:
        """Start to listen, at the same port as before; ``with_token``: False = it knows another token."""
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self._port))
        listening.listen()
        self._port = listening.getsockname()[1]
        self._hub = Hub()
        app = make_app(self._hub, self._stage, self.logs.get, self._gate if with_token else Gate())
        config = uvicorn.Config(app, lifespan="off", log_level="critical", access_log=False)
        self._server = uvicorn.Server(config)
        self._serving = asyncio.run_coroutine_threadsafe(self._server.serve(sockets=[listening]), self._loop)

    def send(self, snapshot: live.Snapshot) -> None:
        """Send a snapshot to the pages that are open, and to those that are opened later."""
        self._run(self._hub.publish(snapshot))

    def stop(self) -> None:
        """Close the connections of the pages, which have got the last snapshot, and the port."""
        self._run(self._hub.close())
        self._server.should_exit = True
        self._serving.result()

    def close(self) -> None:
        """End the thread of a server that has stopped."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def serve(stage: live.Stage, logs: Mapping[int, bytes]) -> Iterator[Server]:
    """Serve the live page of a run, and end the server with the context."""
    server = Server(stage, logs)
    try:
        yield server
    finally:
        server.stop()
        server.close()
