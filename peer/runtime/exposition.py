"""The text of metrics for Prometheus, and the endpoint that serves it in the loop of a process.

The endpoint has no thread: a thread per process, which looks every half a second whether it should end, and others for
each scrape, took more time than the scrapes of idle peers themselves.

Source: https://prometheus.io/docs/instrumenting/exposition_formats (text format, version 0.0.4).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

from msgspec import Struct

COUNTER: Final = "counter"
GAUGE: Final = "gauge"

MOST_REQUEST_BYTES: Final = 1 << 14
"""The longest request that the endpoint reads."""

REQUEST_S: Final = 10.0
"""The time within which a request must arrive (s)."""


class Family(Struct, frozen=True):
    """A metric with its values.

    Attributes:
        kind: ``COUNTER`` or ``GAUGE``.
        name: its name; that of a counter ends in ``_total``.
        text: what it means.
        values: its value for each value of ``label``. Without a label there is one, for "".
        label: the name of its label; "" = it has none.
    """

    kind: str
    name: str
    text: str
    values: Mapping[str, float]
    label: str = ""


def single(kind: str, name: str, text: str, value: float) -> Family:
    """Return a metric without a label; the arguments are those of ``Family``."""
    return Family(kind, name, text, {"": value})


def expose(families: Iterable[Family]) -> bytes:
    """Return the text of metrics. Labels' values need no escapes: they are names and numbers of this code."""
    lines: list[str] = []
    for family in families:
        lines += (f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}")
        for value, number in family.values.items():
            where = f'{{{family.label}="{value}"}}' if family.label else ""
            lines.append(f"{family.name}{where} {float(number)}")
    return "\n".join((*lines, "")).encode()


async def serve_metrics(address: str, port: int, collect: Callable[[], Iterable[Family]]) -> asyncio.AbstractServer:
    """Serve metrics at an address, in the running loop.

    Args:
        address: the IP address.
        port: the TCP port.
        collect: returns the present metrics.

    Raises:
        OSError: the address cannot be listened at.
    """
    return await asyncio.get_running_loop().create_server(lambda: _Scrape(collect), address, port)


class _Scrape(asyncio.Protocol):
    """A connection of a scraper: one request, whatever it asks for, and the answer."""

    def __init__(self, collect: Callable[[], Iterable[Family]]) -> None:
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
