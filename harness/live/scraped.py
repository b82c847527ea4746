"""What the run's Prometheus says of peers whose traces are on other machines: how many are up, and what they published.

Deliveries are not asked for: the counters of peers are scraped at different instants, and count a node's own messages.
"""

import re
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.json import Decoder

from harness.errors import TestbedError
from harness.stages.prometheus import LOOPBACK, Client
from metrics.rundir import Record, read_document
from metrics.rundir.files import DEPLOYMENT_FILE

TIMEOUT_S: Final = 2.0
"""How long the server may take for an answer. It runs only when no other process wants the processor."""

_URL = re.compile(rf"http://{re.escape(LOOPBACK)}:[0-9]{{1,5}}\Z")


class Scraped(NamedTuple):
    """The last scrapes of the peers.

    Attributes:
        up: peers that answered.
        published: messages that they have published so far.
    """

    up: int
    published: int


def find_scrapes(run_dir: Path) -> "PeerScrapes | None":
    """Return the scrapes of a run's Prometheus; None = it has none, or it is not on loopback.

    Anybody may have made a run directory, and so may name any server in it.
    """
    path = run_dir / DEPLOYMENT_FILE
    url = read_document(path, Decoder(Record).decode).prometheus if path.exists() else None
    return PeerScrapes(Client(url, timeout_s=TIMEOUT_S)) if url is not None and _URL.match(url) else None


class PeerScrapes:
    """Follows the counters of the peers on a server.

    A peer that crashed counts from 0 again; what it had published before is kept.

    Args:
        server: the run's Prometheus.
    """

    def __init__(self, server: Client) -> None:
        self._server = server
        self._last: dict[str, int] = {}
        self._published = 0

    def read(self) -> Scraped | None:
        """Return the last scrapes; None = there was none, or the server does not answer."""
        try:
            up = self._ask('up{job="peer"}')
            published = self._ask('trellis_publications_total{job="peer"}')
        except TestbedError:
            return None
        if not up:
            return None
        for instance, count in published.items():
            before = self._last.get(instance, 0)
            self._published += count - before if count >= before else count
            self._last[instance] = count
        return Scraped(sum(up.values()), self._published)

    def _ask(self, expression: str) -> dict[str, int]:
        """Return a number per instance."""
        rows: list[dict[str, Any]] = self._server.query(expression, time.time())
        return {row["metric"]["instance"]: round(float(row["value"][1])) for row in rows}
