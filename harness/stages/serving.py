"""Servers of ``trellis serve`` on loopback: the files of a run, and a way to its Prometheus.

Every user of the machine can connect to loopback, and so can any page in the reader's browser. So a request needs the
token, which is in the addresses that are printed, as Jupyter has it. A browser keeps it as a cookie; another program,
such as Grafana, sends it as ``Authorization: Bearer TOKEN``. And a request must be for a loopback name: the name of a
site that now leads to this machine is none (DNS rebinding).
"""

import http.client
import secrets
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from harness.stages.prometheus import LOOPBACK, Prometheus
from metrics.report.script import script_source
from metrics.rundir.files import REPORT_FOLDER

NAMES: Final = (LOOPBACK, "localhost", "[::1]")
"""The names by which a reader may ask, with any port: it may be forwarded."""

WRONG_NAME: Final = "expected the name 127.0.0.1 or localhost"

_MOST_BYTES = 1 << 20
"""Of a question to Prometheus."""

_ASKED = ("Accept", "Content-Type", "If-None-Match", "If-Modified-Since")
_ANSWERED = ("Content-Type", "Location", "Cache-Control", "ETag", "Last-Modified")
"""The headers that are passed on."""

_ONLY_OURS = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; script-src {}"
"""The replay has a script, which is ours; the pages of a run that somebody else made may have others."""


class Gate:
    """The token of one server, and the cookie that stands for it; ``token``: None = a new one."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self.cookie = f"trellis-{sha256(self.token.encode()).hexdigest()[:16]}"

    def sign(self, url: str) -> str:
        """Return an address with the token."""
        return f"{url}{'&' if '?' in url else '?'}{urlencode({'token': self.token})}"

    def knows(self, token: str | None) -> bool:
        return token is not None and secrets.compare_digest(token.encode(), self.token.encode())

    def admits(self, cookies: str, authorization: str) -> bool:
        """Return whether the headers ``Cookie`` or ``Authorization`` of a request have the token."""
        return self.knows(self._find(cookies)) or self.knows(_bearer(authorization))

    def set_cookie(self) -> str:
        """Return the header ``Set-Cookie`` for whoever has shown the token."""
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Lax"

    def strip_token(self, target: str) -> str | None:
        """Return where a request for a path with the token in its query is sent on to; None = it has no token."""
        parts = urlsplit(target)
        query = parse_qsl(parts.query, keep_blank_values=True)
        if not self.knows(dict(query).get("token")):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        return f"/{parts.path.lstrip('/')}{f'?{rest}' if rest else ''}"

    def _find(self, cookies: str) -> str | None:
        try:
            found = SimpleCookie(cookies).get(self.cookie)
        except CookieError:
            return None
        return None if found is None else found.value


def _bearer(authorization: str) -> str | None:
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def names_loopback(host: str) -> bool:
    """Return whether the header ``Host`` has a name of loopback, with any port or none."""
    return host in NAMES or host.rpartition(":")[0] in NAMES


class _Guarded(BaseHTTPRequestHandler):
    """A handler that answers requests with the token, for a loopback name."""

    gate: Gate

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing, so that the addresses stay visible."""

    def guard(self, answer: Callable[[], None]) -> None:
        """Answer a request if it is admitted; one with the token in its address is sent on with a cookie instead."""
        if not names_loopback(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.FORBIDDEN, WRONG_NAME)
        elif (place := self.gate.strip_token(self.path)) is not None:
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", place)
            self.send_header("Set-Cookie", self.gate.set_cookie())
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.gate.admits(self.headers.get("Cookie", ""), self.headers.get("Authorization", "")):
            answer()
        else:
            self.send_error(HTTPStatus.FORBIDDEN, "open the address that trellis serve printed: it has the token")


class _RunHandler(_Guarded, SimpleHTTPRequestHandler):
    """The files of a run, and nothing that a link in it leads to."""

    def do_GET(self) -> None:
        self.guard(super().do_GET)

    def do_HEAD(self) -> None:
        self.guard(super().do_HEAD)

    def translate_path(self, path: str) -> str:
        found, root = Path(super().translate_path(path)), Path(self.directory).resolve()
        inside = found.resolve()
        return str(found) if inside == root or root in inside.parents else str(root / "outside")

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", _ONLY_OURS.format(script_source()))
        super().end_headers()


class _PrometheusHandler(_Guarded):
    """Passes queries on to a Prometheus that answers no other program."""

    server_of_data: Prometheus

    def do_GET(self) -> None:
        self.guard(self._pass_on)

    do_HEAD = do_POST = do_GET

    def _pass_on(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        headers = {name: value for name in _ASKED if (value := self.headers.get(name)) is not None}
        connection = http.client.HTTPConnection(LOOPBACK, self.server_of_data.port, timeout=60)
        try:
            question = self.rfile.read(int(length))
            connection.request(self.command, self.path, question, {**headers, **self.server_of_data.authorization})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.send_error(HTTPStatus.BAD_GATEWAY, f"Prometheus does not answer: {error}")
            return
        finally:
            connection.close()
        self.send_response(answer.status)
        for name in _ANSWERED:
            if (value := answer.getheader(name)) is not None:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _LoopbackServer(ThreadingHTTPServer):
    daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}"


class RunServer(_LoopbackServer):
    """An HTTP server of a run directory. ``report`` is the address of the report, which links to the tables."""

    def __init__(self, folder: Path, port: int, gate: Gate) -> None:
        handler = type("RunHandler", (_RunHandler,), {"gate": gate})
        super().__init__((LOOPBACK, port), partial(handler, directory=str(folder)))
        self.report = gate.sign(f"{self.url}/{REPORT_FOLDER}/")


class PrometheusServer(_LoopbackServer):
    """An HTTP server that asks a Prometheus."""

    def __init__(self, prometheus: Prometheus, port: int, gate: Gate) -> None:
        super().__init__(
            (LOOPBACK, port), type("Handler", (_PrometheusHandler,), {"gate": gate, "server_of_data": prometheus})
        )
