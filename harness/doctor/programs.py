"""The programs that Trellis starts, from the table that the set-up uses."""

import os
import shutil
from pathlib import Path

from msgspec import Struct

SETUP = Path(__file__).parents[1] / "setup"
"""The folder of the set-up's scripts and tables."""

EXTRA_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Folders of sshd and other programs that a user's PATH may not have."""


class Program(Struct, frozen=True):
    """A line of ``programs.txt``. ``groups``: ``run`` (needed for every use), or the verbs that need the program."""

    name: str
    packages: tuple[str, ...]
    groups: tuple[str, ...]
    purpose: str


def read_programs() -> list[Program]:
    """Return the programs of the table, in order."""
    lines = (line.split(None, 3) for line in (SETUP / "programs.txt").read_text(encoding="utf-8").splitlines())
    return [
        Program(words[0], tuple(words[1].split(",")), tuple(words[2].split(",")), words[3])
        for words in lines
        if words and not words[0].startswith("#")
    ]


def program_path() -> str:
    """Return the PATH for programs: the user's, followed by the missing folders of ``EXTRA_PATH``."""
    own = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join((*own, *(folder for folder in EXTRA_PATH if folder not in own)))


def find_program(name: str) -> str | None:
    """Return the program's path, found as the set-up does; None if the program is missing."""
    return shutil.which(name, path=program_path())
