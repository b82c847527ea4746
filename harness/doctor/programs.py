"""The programs that Trellis starts, read from the table that the set-up installs by."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from msgspec import Struct

SETUP = Path(__file__).parents[1] / "setup"
"""The set-up's scripts and tables."""

EXTRA_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where sshd and others live although a user's PATH does not look there."""


class Program(Struct, frozen=True):
    """A line of ``programs.txt``. ``groups``: ``run`` for every use, otherwise the verbs that need the program."""

    name: str
    packages: tuple[str, ...]
    groups: tuple[str, ...]
    purpose: str


def read_programs(table: Path = SETUP / "programs.txt") -> list[Program]:
    """The table's programs in their order."""
    lines = (line.split(None, 3) for line in table.read_text(encoding="utf-8").splitlines())
    return [
        Program(words[0], tuple(words[1].split(",")), tuple(words[2].split(",")), words[3])
        for words in lines
        if words and not words[0].startswith("#")
    ]


def program_path() -> str:
    """The PATH that programs are looked for in: the user's, and after it what of ``EXTRA_PATH`` that lacks."""
    own = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join((*own, *(folder for folder in EXTRA_PATH if folder not in own)))


def find_program(name: str) -> str | None:
    """The program's path, looked for as the set-up does; None when it is missing."""
    return shutil.which(name, path=program_path())
