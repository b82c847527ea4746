"""``trellis serve`` answers whoever has the token, for a loopback name, with files of the run only."""

import http.client
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from harness.stages.serving import Gate, PrometheusServer, RunServer
from metrics.report.script import script_source

SECRET = "the reader's secret"


class Answer(NamedTuple):
    status: int
    content: bytes
    headers: dict[str, str]


def ask(port: int, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    found = Answer(answer.status, answer.read(), dict(answer.getheaders()))
    connection.close()
    return found


def cookie(gate: Gate) -> dict[str, str]:
    return {"Cookie": f"other=1; {gate.cookie}={gate.token}"}


def started(server: Any) -> Any:
    Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "report").mkdir(parents=True)
    (folder / "report" / "index.html").write_text("the report")
    (tmp_path / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def report(run_dir: Path, gate: Gate) -> Iterator[RunServer]:
    server = started(RunServer(run_dir, 0, gate))
    yield server
    server.shutdown()
    server.server_close()


class Backend(BaseHTTPRequestHandler):
    """A Prometheus that says what it was asked."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        said = f"{self.command} {self.path} {self.rfile.read(length).decode()} {self.headers.get('Authorization')}"
        self.send_response(302 if self.path == "/" else 200)
        self.send_header("Location", "/graph")
        self.send_header("X-Own", "1")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said.encode())

    do_POST = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def prometheus(gate: Gate) -> Iterator[PrometheusServer]:
    backend = started(ThreadingHTTPServer(("127.0.0.1", 0), Backend))
    known: Any = SimpleNamespace(port=backend.server_port, authorization={"Authorization": "Basic word"})
    server = started(PrometheusServer(known, 0, gate))
    yield server
    for each in (server, backend):
        each.shutdown()
        each.server_close()


def test_the_printed_address_leads_to_the_report_and_leaves_a_cookie(report: RunServer, gate: Gate) -> None:
    parts = urlsplit(report.report)
    first = ask(report.server_port, f"{parts.path}?a=1&{parts.query}")
    assert (first.status, first.headers["Location"]) == (302, "/report/?a=1")
    assert gate.token not in first.headers["Location"]
    kept, *options = first.headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Lax"} <= set(options)
    second = ask(report.server_port, first.headers["Location"], Cookie=kept)
    assert (second.status, second.content) == (200, b"the report")
    assert second.headers["Content-Security-Policy"].endswith(f"script-src {script_source()}")


def test_a_redirection_leads_to_this_server_only(report: RunServer, gate: Gate) -> None:
    assert ask(report.server_port, gate.sign("//evil.example/x")).headers["Location"].startswith("/evil.example")


@pytest.mark.parametrize("server", ["report", "prometheus"])
def test_without_the_token_nothing_is_answered(server: str, gate: Gate, request: pytest.FixtureRequest) -> None:
    port = request.getfixturevalue(server).server_port
    for headers in (
        {},
        {"Cookie": f"{gate.cookie}=x"},
        {"Cookie": f"x={gate.token}"},
        {"Cookie": '";;=\x7f'},
        {"Authorization": "Bearer x"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {gate.token}"},
    ):
        for path in ("/report/", "/", "/metrics", "/report/?token=x", "/report/?token="):
            found = ask(port, path, **headers)
            assert found.status == 403 and b"the report" not in found.content
            assert gate.token not in found.content.decode()


@pytest.mark.parametrize("server", ["report", "prometheus"])
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_another_program_sends_the_token_in_a_header(
    server: str, scheme: str, gate: Gate, request: pytest.FixtureRequest
) -> None:
    port = request.getfixturevalue(server).server_port
    assert ask(port, "/report/", Authorization=f"{scheme} {gate.token}").status == 200
    assert ask(port, "/report/", Host="evil.example", Authorization=f"{scheme} {gate.token}").status == 403


@pytest.mark.parametrize("server", ["report", "prometheus"])
def test_only_loopback_names_are_answered(server: str, gate: Gate, request: pytest.FixtureRequest) -> None:
    port = request.getfixturevalue(server).server_port
    for name in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost:1234", "localhost", "[::1]:80"):
        assert ask(port, "/report/", Host=name, **cookie(gate)).status == 200, name
    for name in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example:80",
        "",
        "localhost.:80",
        "0.0.0.0:80",
    ):
        assert ask(port, "/report/", Host=name, **cookie(gate)).status == 403, name
        assert ask(port, gate.sign("/report/"), Host=name).status == 403, name


def test_links_that_leave_the_run_are_not_followed(report: RunServer, run_dir: Path, gate: Gate) -> None:
    (run_dir / "file").symlink_to("../secret")
    (run_dir / "root").symlink_to("/")
    (run_dir / "page").symlink_to("report/index.html")
    for path in ("/file", "/root/etc/hostname", "/root/", "/../secret", "/%2e%2e/secret", "//etc/hostname"):
        assert ask(report.server_port, path, **cookie(gate)).status == 404, path
        assert ask(report.server_port, path, "HEAD", **cookie(gate)).status == 404, path
    assert ask(report.server_port, "/page", **cookie(gate)).content == b"the report"


def test_prometheus_is_asked_with_its_password_and_without_the_readers_cookie(
    prometheus: PrometheusServer, gate: Gate
) -> None:
    port, reader = prometheus.server_port, cookie(gate)
    got = ask(port, "/api/v1/query?query=up", Authorization="Basic mine", **reader)
    assert (got.status, got.content) == (200, b"GET /api/v1/query?query=up  Basic word")
    assert "X-Own" not in got.headers
    posted = ask(port, "/api/v1/query", "POST", b"query=up", **reader)
    assert posted.content == b"POST /api/v1/query query=up Basic word"
    moved = ask(port, "/", **reader)
    assert (moved.status, moved.headers["Location"]) == (302, "/graph")
    assert ask(port, "/", "POST", **reader, **{"Content-Length": str(1 << 21)}).status == 413


def test_a_prometheus_that_does_not_answer_is_said(gate: Gate) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Backend) as gone:
        port = gone.server_port
    known: Any = SimpleNamespace(port=port, authorization={})
    server = started(PrometheusServer(known, 0, gate))
    assert ask(server.server_port, "/", **cookie(gate)).status == 502
    server.shutdown()
    server.server_close()


def test_tokens_are_new_each_time() -> None:
    one, two = Gate(), Gate()
    assert one.token != two.token and one.cookie != two.cookie
    assert len(one.token) > 40
