"""List the captures of a path, their names in tables, and the hosts that two of them claim."""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from metrics.pcap.files import Capture, head_of, read_bytes, require_regular
from metrics.pcap.pcapng import is_pcapng
from metrics.pcap.records import UNKNOWN_HOST
from metrics.storage import Place, StorePath, place

NAMES: Final = ".pcap, .pcapng, .cap, each also with a number behind it or .gz"
_NAME: Final = re.compile(r"\.(pcap|pcapng|cap)\.?[0-9]*(\.gz)?$", re.IGNORECASE)
_SHOWN = 3

HEAD_BYTES: Final = 1 << 20
"""Bytes of a capture to read: only interfaces that these describe may share a host with other files."""


@dataclass(frozen=True)
class Listing:
    """The captures that a path stands for, and other files that are not read."""

    captures: list[Capture]
    left_out: list[str]

    def describe_left_out(self) -> str | None:
        """Return what was left out, as a sentence; None if nothing was."""
        if not self.left_out:
            return None
        more = len(self.left_out) - _SHOWN
        names = ", ".join(self.left_out[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"{len(self.left_out)} left out (no regular file, or not named as a capture: {NAMES}): {names}"


def list_captures(path: Place | str) -> Listing:
    """Find the captures of a path or URI: a file, a folder's captures at any depth, or a pattern's matches.

    In a store only the last part of a pattern may have wildcards. The beginning of each file is read.

    Raises:
        FileNotFoundError: there is no capture.
        CaptureError: a file is not a capture.
    """
    where = place(path if "://" in path else path.removeprefix("file:")) if isinstance(path, str) else path
    if not str(path):
        raise FileNotFoundError("option path: expected a file, a folder or a pattern, got nothing")
    found, left_out = _list(where)
    if not found:
        also = f"; left out: {', '.join(left_out[:_SHOWN])}" if left_out else ""
        raise FileNotFoundError(
            f"option path: no capture at {str(path)!r} (a file, a folder of {NAMES}, a pattern){also}"
        )
    claims = [_claimed_hosts(each) for each in found]
    counts = Counter(host for hosts in claims for host in hosts)
    shared = frozenset(host for host, count in counts.items() if count > 1)
    captures = [replace(each, contested=shared & hosts) for each, hosts in zip(found, claims, strict=True)]
    return Listing(captures, left_out)


def _list(where: Place) -> tuple[list[Capture], list[str]]:
    """Return the captures, and what is left out."""
    if where.is_dir():
        files = dict(_walk(where))
        chosen = {name: path for name, path in files.items() if _NAME.search(name)}
    elif isinstance(where, StorePath):
        matches = [where] if where.is_file() else where.parent.glob(where.name)
        files = chosen = {path.name: path for path in matches}
    elif where.exists():
        require_regular(where)
        return [Capture(where, where.name)], []
    else:
        files = chosen = dict(_match(str(where)))
    regular = {name: path for name, path in chosen.items() if path.is_file()}
    left_out = sorted(files.keys() - regular.keys())
    return [Capture(path, name) for name, path in sorted(regular.items())], left_out


def _walk(folder: Place) -> Iterator[tuple[str, Place]]:
    """Yield every file below a folder with its path from there, and the folders with names of captures."""
    if isinstance(folder, StorePath):
        yield from ((str(path).removeprefix(f"{folder}/"), path) for path in folder.walk())
        return
    for parent, folders, files in os.walk(folder):
        for name in [*files, *(each for each in folders if _NAME.search(each))]:
            path = Path(parent, name)
            yield path.relative_to(folder).as_posix(), path


def _match(pattern: str) -> Iterator[tuple[str, Place]]:
    """Yield the matches of a pattern, with their paths from the pattern's last folder without wildcards."""
    parts = Path(pattern).parts
    fixed = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    base = Path(*parts[:fixed])
    for match in glob.iglob(pattern, recursive=True):  # noqa: PTH207 - patterns may be absolute
        yield Path(match).relative_to(base).as_posix(), Path(match)


def hosts_of(capture: Capture) -> frozenset[int] | None:
    """Return the hosts in the rows of a listed capture; None if interfaces may follow that its beginning lacks."""
    head = head_of(capture.path, HEAD_BYTES)
    if is_pcapng(head) and len(head) >= HEAD_BYTES:
        return None
    return _claimed_hosts(capture) - capture.contested


def _claimed_hosts(capture: Capture) -> frozenset[int]:
    """Return the hosts of the interfaces that the beginning of a file describes."""
    interfaces = read_bytes(head_of(capture.path, HEAD_BYTES), capture.rule).interfaces
    return frozenset(each.host for each in interfaces) - {UNKNOWN_HOST}
