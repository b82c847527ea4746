"""Where the results of a sweep come from: the commit of the code, the machine and the day."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from harness.studies.code_hash import CODE, ROOT


class Machine(Struct, frozen=True):
    """What computed the results: the processor, the number of its cores that could be used, the kernel and Python."""

    processor: str
    cores: int
    kernel: str
    python: str


class Origin(Struct, frozen=True):
    """Where the results of a sweep come from.

    Attributes:
        commit: the last commit that changed the code that determines results (``code_hash.CODE``); empty = unknown.
            Commits that only change other files, such as documents, do not count.
        clean: whether that code and the study file were as committed.
        date: the day on which the sweep ended, in UTC.
        machine: the machine that carried out the sweep; None = not known.
    """

    commit: str
    clean: bool
    date: str
    machine: Machine | None


def describe_commit(commit: str, *, clean: bool) -> str:
    """Return a commit as Markdown, and whether the code was as committed."""
    return f"commit `{commit}`" + ("" if clean else ", **with changes that were not committed**")


def find_origin(source: Path, machine: Machine | None, root: Path = ROOT) -> Origin:
    """Return the origin of results that this checkout computes now.

    Args:
        source: the study file.
        machine: this machine; None = not known.
        root: the checkout.
    """
    commit = _git(root, "log", "-1", "--format=%h", "--abbrev=12", "--", *CODE)
    changes = _git(root, "status", "--porcelain", "--", *CODE, str(source))
    return Origin(commit or "", bool(commit) and changes == "", datetime.now(UTC).date().isoformat(), machine)


def _git(root: Path, *arguments: str) -> str | None:
    """Return what Git prints; None = it failed."""
    argv = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
