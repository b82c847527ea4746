"""The endpoint of a process's metrics for Prometheus, which is served in the process's own loop.

The text is that of Prometheus's own library. Its server is not used: a thread per process, which looks every half a
second whether it should end, and others for each scrape, took more time than the scrapes of idle peers themselves.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar, cast

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from peer.runtime.host_sockets import MakeSocket, listen_at

MOST_REQUEST_BYTES: Final = 1 << 14
"""The longest request that the endpoint reads."""

BACKLOG: Final = 100
"""The most connections that wait to be accepted."""

REQUEST_S: Final = 10.0
"""The time within which a request must arrive (s)."""


Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


def by_label(kind: type[Family], name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    """Return a metric with a value for each value of a label.

    Args:
        kind: the class of the metric.
        name: its name, without the ``_total`` that the library gives counters.
        text: what it means.
        label: the name of the label.
        values: the metric's values by those of the label.
    """
    family = kind(name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family


class _Collected(Collector):
    """What is collected for one scrape."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def expose(metrics: Iterable[Metric]) -> bytes:
    """Return the text of metrics."""
    return generate_latest(_Collected(metrics))


async def serve_metrics(
    address: str, port: int, collect: Callable[[], Iterable[Metric]], make_socket: MakeSocket | None = None
) -> asyncio.AbstractServer:
    """Serve metrics at an address, in the running loop.

    Args:
        address: the IP address.
        port: the TCP port.
        collect: returns the present metrics.
        make_socket: makes sockets of the host with this address; None = it is this process's host.

    Raises:
        OSError: the address cannot be listened at.
    """
    loop = asyncio.get_running_loop()
    if make_socket is None:
        return await loop.create_server(lambda: _Scrape(collect), address, port)
    return await loop.create_server(lambda: _Scrape(collect), sock=listen_at((address, port), BACKLOG, make_socket))


class _Scrape(asyncio.Protocol):
    """A connection of a scraper: one request, whatever it asks for, and the answer."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._limit = asyncio.get_running_loop().call_later(REQUEST_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._request += data
        if b"\r\n\r\n" in self._request:
            content = expose(self._collect())
            head = (
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
            )
            self._transport.write(head.encode() + content)
            self._transport.close()
        elif len(self._request) > MOST_REQUEST_BYTES:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._limit.cancel()
