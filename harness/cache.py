"""What Trellis keeps in the user's cache folder, since it can make it again."""

import contextlib
import os
from pathlib import Path
from typing import TypeVar

import msgspec

Form = TypeVar("Form")


def cache_folder() -> Path:
    """Return Trellis's folder in the user's cache folder; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trellis"


def read_kept(name: str, form: type[Form]) -> Form | None:
    """Return the content of a JSON file in the folder; None if there is none, or none of this form."""
    try:
        return msgspec.json.decode((cache_folder() / name).read_bytes(), type=form)
    except (OSError, msgspec.DecodeError):
        return None


def keep(name: str, content: object) -> None:
    """Write a JSON file into the folder, whole. Where nothing can be written, the next command makes it again."""
    path = cache_folder() / name
    unfinished = path.with_name(f"{name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(msgspec.json.encode(content))
        unfinished.replace(path)
