"""The metrics endpoint of peers and agents: what a scraper reads there, and what an intruder cannot do."""

import asyncio
import socket
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from peer.runtime.exposition import MOST_REQUEST_BYTES, by_label, serve_metrics
from tests.event_loop import LIMIT_S, run

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: peer\r\nAccept: */*\r\n\r\n"


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

        def count() -> Iterator[Metric]:
            asked.append(len(asked))
            yield CounterMetricFamily("scrapes", "Scrapes.", value=len(asked))
            yield by_label(GaugeMetricFamily, "links", "Links.", "topic", {"3": 2, "4": 5})

        server = await serve_metrics(*address, count)
        for number in (1, 2):
            head, _, body = (await ask(address, REQUEST[:10], REQUEST[10:])).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert f"Content-Length: {len(body)}".encode() in head.splitlines()
            lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
            assert lines == [f"scrapes_total {number}.0", 'links{topic="3"} 2.0', 'links{topic="4"} 5.0']
        server.close()

    run(scenario)


def test_an_endless_request_is_cut_and_nothing_is_collected_for_it() -> None:
    async def scenario() -> None:
        address, collected = free_address(), []

        def count() -> Iterator[Metric]:
            collected.append(None)
            yield from ()

        server = await serve_metrics(*address, count)
        assert await ask(address, b"x" * (2 * MOST_REQUEST_BYTES)) == b""
        assert not collected
        server.close()

    run(scenario)
