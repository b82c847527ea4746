"""The live page: what a browser shows of a run in progress.

The page is ``index.html``; its other files are named relative to it. It asks the server for three things: ``stage``
(``Stage``, as JSON), ``events`` (server-sent events, each with a ``Snapshot`` as JSON) and ``logs/NODE`` (the last
lines of a peer's logs, as text). No script and no style is in the page itself, so that a Content-Security-Policy can
refuse both.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from msgspec import json

from metrics.report.coasts import NORTH, SOUTH, read_coasts
from metrics.report.palette import palette_css

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy that the page needs."""


class File(NamedTuple):
    """A file of the page: its bytes, and its media type."""

    content: bytes
    media_type: str


@cache
def read_files() -> Mapping[str, File]:
    """Return the files of the page by their names; the page itself is ``index.html``."""
    page, report = files(__name__), files("metrics.report")
    style = "".join((report / name).read_text(encoding="utf-8") for name in ("style.css", "controls.css"))
    land = {"north": NORTH, "south": SOUTH, "rings": read_coasts()}
    return {
        "index.html": File((page / "index.html").read_bytes(), "text/html; charset=utf-8"),
        "live.css": File((page / "live.css").read_bytes(), "text/css; charset=utf-8"),
        "live.js": File((page / "live.js").read_bytes(), "text/javascript; charset=utf-8"),
        "report.css": File((palette_css() + style).encode(), "text/css; charset=utf-8"),
        "world.js": File((report / "world.js").read_bytes(), "text/javascript; charset=utf-8"),
        "land.json": File(json.encode(land), "application/json"),
    }
