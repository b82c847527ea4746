"""Where data come from: source, date, licence and hash, as the plan records them."""

import hashlib
import re
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

NOT_STATED = "not stated"

Statement = Annotated[str, Meta(max_length=500)]

_STATED = re.compile(r"#\s*(source|date|licence|license):\s*(.{1,500})", re.IGNORECASE)


class Provenance(Struct, frozen=True, omit_defaults=True):
    """What a reader needs to know of data to find, cite and compare them.

    Attributes:
        source: who measured what, and where it is published.
        date: when it was measured.
        licence: on which terms it may be passed on.
        sha256: the hash of every file read, by the file's name without its folder.
        notes: what the importer filled, left out or assumed.
    """

    source: Statement = NOT_STATED
    date: Statement = NOT_STATED
    licence: Statement = NOT_STATED
    sha256: dict[str, str] = {}
    notes: tuple[str, ...] = ()

    def describe(self) -> list[str]:
        """Return a line for the statements, one per file, and one per note."""
        stated = f"source: {self.source}; date: {self.date}; licence: {self.licence}"
        return [stated, *(f"file: {name}, SHA-256 {digest}" for name, digest in self.sha256.items()), *self.notes]

    def statements(self) -> dict[str, str]:
        """Return what is stated of source, date and licence, by these names."""
        named = {"source": self.source, "date": self.date, "licence": self.licence}
        return {name: text for name, text in named.items() if text != NOT_STATED}


def stated_in(text: str) -> dict[str, str]:
    """Return source, date and licence as comment lines such as ``# licence: CC BY 4.0`` state them."""
    found = [match for line in text.splitlines() if (match := _STATED.match(line))]
    return {match[1].lower().replace("license", "licence"): match[2].strip() for match in found}


def comment_lines(provenance: Provenance) -> list[str]:
    """Return the lines that ``stated_in`` reads."""
    return [f"# {name}: {' '.join(text.split())}\n" for name, text in provenance.statements().items()]


def hash_files(*paths: Path) -> dict[str, str]:
    """Return the SHA-256 of files by their names."""
    digests = {}
    for path in paths:
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
