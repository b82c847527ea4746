"""The script of the replay's page. It is the only script that a server of run directories may let run.

What it shares with other pages that have a map is in ``world.js``.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files


def read_script() -> str:
    """Return the script."""
    return "".join((files("metrics.report") / name).read_text(encoding="utf-8") for name in ("world.js", "replay.js"))


@cache
def script_source() -> str:
    """Return the script as a source of a Content-Security-Policy: its hash."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(read_script().encode()).digest()).decode()}'"
