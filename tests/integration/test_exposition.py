"""The metrics endpoint of peers and agents: what a scraper reads there, and what an intruder cannot do."""

import asyncio
import socket
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from peer.runtime.exposition import COUNTER, GAUGE, MOST_REQUEST_BYTES, Family, expose, serve_metrics, single
from tests.event_loop import LIMIT_S, run

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: peer\r\nAccept: */*\r\n\r\n"
SENT = {"hello": 2, "data": 1 << 40}


def collect() -> Iterator[Family]:
    yield Family(COUNTER, "trellis_sent_frames_total", "Frames handed to the socket.", SENT, "kind")
    yield Family(GAUGE, "trellis_logical_links", "Logical links.", {}, "topic")
    yield single(GAUGE, "trellis_links", "Physical links that are up.", 3)
    yield single(COUNTER, "process_cpu_seconds_total", "Processor time.", 0.0625)


class Reference(Collector):
    """The same metrics for the library of Prometheus."""

    def collect(self) -> Iterator[Metric]:
        sent = CounterMetricFamily("trellis_sent_frames", "Frames handed to the socket.", labels=("kind",))
        for kind, count in SENT.items():
            sent.add_metric((kind,), count)
        yield sent
        yield GaugeMetricFamily("trellis_logical_links", "Logical links.", labels=("topic",))
        yield GaugeMetricFamily("trellis_links", "Physical links that are up.", value=3)
        yield CounterMetricFamily("process_cpu_seconds", "Processor time.", value=0.0625)


def test_the_text_is_that_of_prometheus_own_library() -> None:
    registry = CollectorRegistry()
    registry.register(Reference())
    theirs = generate_latest(registry).decode().splitlines()
    ours = expose(collect()).decode().splitlines()
    assert [line for line in ours if line[0] == "#"] == [line for line in theirs if line[0] == "#"]
    assert [split(line) for line in ours if line[0] != "#"] == [split(line) for line in theirs if line[0] != "#"]


def split(line: str) -> tuple[str, float]:
    name, _, value = line.rpartition(" ")
    return name, float(value)


async def ask(address: tuple[str, int], *pieces: bytes) -> bytes:
    """Send a request piece by piece, and return all that comes until the connection ends."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(LIMIT_S):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def free_address() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        host, port = door.getsockname()
        return host, port


def test_a_scraper_gets_the_present_metrics_each_time() -> None:
    async def scenario() -> None:
        address, asked = free_address(), []

        def count() -> Iterator[Family]:
            asked.append(len(asked))
            yield single(COUNTER, "scrapes_total", "Scrapes.", len(asked))

        server = await serve_metrics(*address, count)
        for number in (1, 2):
            head, _, body = (await ask(address, REQUEST[:10], REQUEST[10:])).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert f"Content-Length: {len(body)}".encode() in head.splitlines()
            assert body.decode().splitlines()[-1] == f"scrapes_total {number}.0"
        server.close()

    run(scenario)


def test_an_endless_request_is_cut_and_nothing_is_collected_for_it() -> None:
    async def scenario() -> None:
        address, collected = free_address(), []

        def count() -> Iterator[Family]:
            collected.append(None)
            yield from ()

        server = await serve_metrics(*address, count)
        assert await ask(address, b"x" * (2 * MOST_REQUEST_BYTES)) == b""
        assert not collected
        server.close()

    run(scenario)
