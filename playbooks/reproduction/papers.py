"""The reproduced papers: which study reproduces which table or figure, and where records and pages are."""

from pathlib import Path

import msgspec
from msgspec import Struct

from harness.errors import ExperimentError
from harness.studies.code_hash import ROOT

PAGES = ROOT / "docs" / "reproduction"
STUDIES = ROOT / "playbooks" / "studies"
PAPERS_FILE = "papers.toml"


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A table, figure or section of a paper, with the study that reproduces it or the reason why none does."""

    what: str
    study: str = ""
    reason: str = ""


class Paper(Struct, frozen=True, forbid_unknown_fields=True):
    """A paper, and what its page shows.

    Attributes:
        name: its name in paths.
        title, source, text: texts of the page.
        protocol: the page of its protocol.
        parts: its tables, figures and sections.
        figure: the plot that is in the repository, as ``<study>-<figure>``; empty = none.
        reading: the reading of the paper that we chose; it decides on the statements that it is a reading of.
        reading_text: which reading it is, and why.
    """

    name: str
    title: str
    source: str
    protocol: str
    parts: tuple[Part, ...]
    text: str = ""
    figure: str = ""
    reading: str = ""
    reading_text: str = ""

    @property
    def studies(self) -> tuple[str, ...]:
        """Return the names of its studies, in the order of the parts."""
        return tuple(dict.fromkeys(part.study for part in self.parts if part.study))


class Place(Struct, frozen=True):
    """Where the pages and the study files are."""

    pages: Path = PAGES
    studies: Path = STUDIES

    def record(self, paper: Paper, study: str) -> Path:
        """Return the path of a study's record."""
        return self.pages / paper.name / f"{study}.json"


HERE = Place()


def read_papers(place: Place = HERE) -> tuple[Paper, ...]:
    """Read the list of papers."""
    content = (place.pages / PAPERS_FILE).read_bytes()
    return msgspec.toml.decode(content, type=dict[str, tuple[Paper, ...]])["paper"]


def paper_of(study: str, place: Place = HERE) -> Paper:
    """Return the paper that a study reproduces.

    Raises:
        ExperimentError: no paper lists the study.
    """
    for paper in read_papers(place):
        if study in paper.studies:
            return paper
    raise ExperimentError(str(place.pages / PAPERS_FILE), f"no paper lists the study {study!r}")
