"""Compares a run's documents with the hashes in its manifest."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from metrics.rundir.files import CHANGES_FILE, PLAN_FILE, UNDERLAY_FILE
from metrics.storage import Place
from peer.files import OVERLAY_FILE, SCHEDULE_FILE, TRACE_FOLDER, trace_file

_BLOCK_BYTES = 1 << 20

_FILES: Final = {"underlay": UNDERLAY_FILE, "overlay": OVERLAY_FILE, "schedule": SCHEDULE_FILE, "changes": CHANGES_FILE}


def digest(parts: Iterable[bytes]) -> str:
    """Return the SHA-256 of parts of a document, one after the other."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def indented(value: object) -> bytes:
    """Return a plain value as JSON for readers, in the form of ``plan.json``."""
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def find_edited(run_dir: Place, hashes: Mapping[str, str]) -> dict[str, bool]:
    """Compare the documents of a run with their hashes.

    Args:
        run_dir: the run.
        hashes: the hashes in the manifest.

    Returns:
        The files that have a hash, and whether each differs from it.
    """
    plan = json.loads((run_dir / PLAN_FILE).read_bytes())
    nodes = [place["node"] for place in plan["placement"]]
    contents: dict[str, tuple[str, Callable[[], Iterable[bytes]]]] = {
        "plan": (PLAN_FILE, lambda: [indented(plan | {"hashes": {}})]),
        "placement": (f"the placement in {PLAN_FILE}", lambda: [indented(plan["placement"])]),
        **{name: (file, partial(_blocks, run_dir / file)) for name, file in _FILES.items()},
        "trace": (TRACE_FOLDER, lambda: (block for node in nodes for block in _blocks(run_dir / trace_file(node)))),
    }
    return {file: digest(read()) != hashes[name] for name, (file, read) in contents.items() if name in hashes}


def _blocks(path: Place) -> Iterator[bytes]:
    """Yield the bytes of a file, none if it is missing."""
    if path.exists():
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block
