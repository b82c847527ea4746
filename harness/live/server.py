"""The server of the live page: ``python -m harness.live.server RUN DESCRIPTOR ENDING [LOADED]``.

DESCRIPTOR is a socket that listens on loopback. The first line of standard input is the token; the server ends with its
standard input. ENDING is what it does when the run is over: ``end``, or ``stay``. With LOADED, a
descriptor, the server gives itself the lowest priority when it has loaded what it needs, and then closes LOADED.

Like ``trellis serve`` (``harness.stages.serving``), it answers only requests with the token, for a loopback name. Pages
of other origins are refused, too: a browser sends the cookie with the requests of pages of other ports of this machine.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from harness.errors import TrellisError
from harness.live.collector import Collector
from harness.live.idle import step_back
from harness.live.opening import STAY
from harness.live.page import POLICY, File, read_files
from harness.live.peer_files import read_log
from harness.live.snapshot import Snapshot, Stage
from harness.live.stream import PERIOD_S
from harness.stages.serving import WRONG_NAME, Gate, names_loopback
from metrics.rundir import RunDirError

GRACE_S: Final = 5
"""How long readers may take for the last snapshot when the server ends."""

NO_TOKEN: Final = "open the address that trellis printed: it has the token"
OTHER_ORIGIN: Final = "a page of another origin asks"

_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Hub:
    """The last snapshot, and the readers that wait for the next one."""

    def __init__(self) -> None:
        self._content = b""
        self._number = 0
        self._is_closed = False
        self._news = asyncio.Condition()

    async def publish(self, snapshot: Snapshot) -> None:
        """Give a snapshot to all readers."""
        async with self._news:
            self._content, self._number = msgspec.json.encode(snapshot), self._number + 1
            self._news.notify_all()

    async def close(self) -> None:
        """Let all readers end after the last snapshot."""
        async with self._news:
            self._is_closed = True
            self._news.notify_all()

    async def follow(self) -> AsyncIterator[bytes]:
        """Yield the last snapshot, if there is one, and then each new one; a slow reader misses some."""
        seen = 0
        while True:
            async with self._news:
                while self._number == seen and not self._is_closed:
                    await self._news.wait()
                if self._number == seen:
                    return
                content, seen = self._content, self._number
            yield content


class Guard:
    """Answers requests that are admitted, and refuses the others before the application sees them."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refusal = self._refuse(Request(scope))
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refuse(self, request: Request) -> Response | None:
        """Return the answer to a request that the application must not see; None = it may."""
        headers = request.headers
        host, origin = headers.get("host", ""), headers.get("origin")
        if not names_loopback(host):
            return _forbid(WRONG_NAME)
        if origin is not None and origin != f"http://{host}":
            return _forbid(OTHER_ORIGIN)
        target = f"{request.url.path}?{request.url.query}"
        if (place := self._gate.strip_token(target)) is not None:
            return RedirectResponse(place, HTTPStatus.FOUND, _HEADERS | {"Set-Cookie": self._gate.set_cookie()})
        if self._gate.admits(headers.get("cookie", ""), headers.get("authorization", "")):
            return None
        return _forbid(NO_TOKEN)


def _forbid(reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", HTTPStatus.FORBIDDEN, _HEADERS)


def make_app(hub: Hub, stage: Stage, find_log: Callable[[int], bytes | None], gate: Gate) -> ASGIApp:
    """Return the application of the page.

    Args:
        hub: has the snapshots.
        stage: what does not change.
        find_log: returns the end of the log of a node's peer; None = there is none.
        gate: has the token.
    """
    encoded = msgspec.json.encode(stage)

    def send_stage(request: Request) -> Response:
        return Response(encoded, headers=_HEADERS, media_type="application/json")

    def send_log(request: Request) -> Response:
        found = find_log(request.path_params["node"])
        if found is None:
            return PlainTextResponse("there is no log of this node here\n", HTTPStatus.NOT_FOUND, _HEADERS)
        return PlainTextResponse(found.decode("utf-8", "replace"), headers=_HEADERS)

    async def send_events(request: Request) -> Response:
        lines = (b"data: " + content + b"\n\n" async for content in hub.follow())
        return StreamingResponse(lines, headers=_HEADERS, media_type="text/event-stream")

    pages = read_files()
    routes = [
        Route("/stage", send_stage),
        Route("/events", send_events),
        Route("/logs/{node:int}", send_log),
        *(Route(f"/{name}", _sender(file)) for name, file in pages.items()),
        Route("/", _sender(pages["index.html"])),
    ]
    return Guard(Starlette(routes=routes), gate)


def _sender(file: File) -> Callable[[Request], Response]:
    """Return what answers with a file of the page."""

    def send_file(request: Request) -> Response:
        return Response(file.content, headers=_HEADERS, media_type=file.media_type)

    return send_file


async def serve(
    run_dir: Path, listening: socket.socket, gate: Gate, tell_loaded: Callable[[], None], *, stays: bool
) -> None:
    """Serve the page of a run until standard input ends, or until the run is over.

    Args:
        run_dir: the run.
        listening: a socket on loopback, which listens.
        gate: has the token.
        tell_loaded: is called before the first request is answered.
        stays: whether the page stays when the run is over.

    Raises:
        RunDirError: a file of the run is damaged.
    """
    collector, hub, told_to_end = Collector(run_dir), Hub(), asyncio.Event()
    _heed_end(told_to_end)
    app = make_app(hub, collector.stage, partial(read_log, run_dir), gate)
    config = uvicorn.Config(
        app, lifespan="off", log_level="critical", access_log=False, timeout_graceful_shutdown=GRACE_S
    )
    config.load()
    tell_loaded()
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await _publish(collector, hub, told_to_end, stays=stays)
    finally:
        await hub.close()
        server.should_exit = True
        await serving


def _heed_end(told_to_end: asyncio.Event) -> None:
    """Set the event when standard input ends."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(sys.stdin)
        told_to_end.set()

    loop.add_reader(sys.stdin, end)


async def _publish(collector: Collector, hub: Hub, told_to_end: asyncio.Event, *, stays: bool) -> None:
    """Publish snapshots until the last one of a run that is over, or until the server is told to end, and one more."""
    is_last = False
    while not is_last:
        is_last = told_to_end.is_set()
        snapshot = await asyncio.to_thread(collector.collect)
        await hub.publish(snapshot)
        if snapshot.ended is not None and not (stays and snapshot.ended.state == "not analysed"):
            break
        if not is_last:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told_to_end.wait(), PERIOD_S)
    if stays:
        await told_to_end.wait()


def main() -> int:
    """Serve a run."""
    run_dir, descriptor, ending, *loaded = sys.argv[1:]

    def tell_loaded() -> None:
        if loaded:
            step_back()
            os.close(int(loaded[0]))

    gate, listening = Gate(sys.stdin.readline().strip()), socket.socket(fileno=int(descriptor))
    try:
        asyncio.run(serve(Path(run_dir), listening, gate, tell_loaded, stays=ending == STAY))
    except (TrellisError, RunDirError) as error:
        print(f"the live page has ended: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
