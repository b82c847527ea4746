"""Lists in files beside the pages, whose entries each belong to a study, such as the checks of a study's claims."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec


class _OfStudy(Protocol):
    @property
    def study(self) -> str: ...


Entry = TypeVar("Entry", bound=_OfStudy)


def read_entries(path: Path, kind: type[Entry]) -> tuple[Entry, ...]:
    """Read the entries of a file; a file that does not exist has none."""
    if not path.exists():
        return ()
    return tuple(
        msgspec.convert(each, kind) for each in msgspec.json.decode(path.read_bytes(), type=list[dict[str, Any]])
    )


def keep_entries(path: Path, kind: type[Entry], entries: Sequence[Entry]) -> Path:
    """Write entries in place of earlier ones of the same studies, and return the file.

    Args:
        path: the file.
        kind: the type of the entries.
        entries: all entries of these studies.
    """
    studies = {each.study for each in entries}
    kept = [each for each in read_entries(path, kind) if each.study not in studies]
    content = json.dumps(msgspec.to_builtins([*kept, *entries]), ensure_ascii=False, indent=1)
    path.write_text(f"{content}\n", encoding="utf-8")
    return path
