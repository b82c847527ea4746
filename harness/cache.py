"""Where Trellis keeps what it can make again: the user's cache folder."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return Trellis's folder in the user's cache folder; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trellis"
