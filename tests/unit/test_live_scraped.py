"""What Prometheus says of peers on other machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import TestbedError
from harness.live.scraped import PeerScrapes, Scraped, find_scrapes
from harness.stages.prometheus import Client


class Server(Client):
    """A server whose answers a test sets: instance -> value, by a word of the expression."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.up: dict[str, int] = {}
        self.published: dict[str, int] = {}

    def query(self, expression: str, at_epoch_s: float) -> list[dict[str, Any]]:
        found = self.up if expression.startswith("up") else self.published
        return [{"metric": {"instance": name}, "value": [at_epoch_s, str(value)]} for name, value in found.items()]


class Silent(Client):
    def query(self, expression: str, at_epoch_s: float) -> list[dict[str, Any]]:
        raise TestbedError("ask Prometheus", "timed out")


def test_publications_of_all_peers_add_up() -> None:
    server = Server()
    scrapes = PeerScrapes(server)
    server.up, server.published = {"a": 1, "b": 0}, {"a": 3, "b": 4}
    assert scrapes.read() == Scraped(up=1, published=7)
    server.up, server.published = {"a": 1, "b": 1}, {"a": 5, "b": 4}
    assert scrapes.read() == Scraped(up=2, published=9)


def test_a_peer_that_crashed_counts_on() -> None:
    server = Server()
    scrapes = PeerScrapes(server)
    server.up = {"a": 1}
    for count, total in ((3, 3), (1, 4), (2, 5)):
        server.published = {"a": count}
        assert scrapes.read() == Scraped(1, total)


def test_before_the_first_scrape_nothing_is_known() -> None:
    assert PeerScrapes(Server()).read() is None
    assert PeerScrapes(Silent("http://127.0.0.1:1")).read() is None


@pytest.mark.parametrize(
    ("prometheus", "found"),
    [
        ("http://127.0.0.1:9090", True),
        ("http://127.0.0.1:9090/x", False),
        ("http://127.0.0.1.site.example:9090", False),
        ("http://site.example:9090", False),
        (None, False),
    ],
)
def test_only_a_server_on_loopback_is_asked(tmp_path: Path, prometheus: str | None, found: bool) -> None:
    (tmp_path / "deployment.json").write_text(json.dumps({"folder": "0", "prometheus": prometheus}))
    assert (find_scrapes(tmp_path) is not None) == found


def test_a_run_that_has_not_begun_has_no_scrapes(tmp_path: Path) -> None:
    assert find_scrapes(tmp_path) is None
