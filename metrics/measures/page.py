"""Writes the tables of measures into the documents: ``python -m metrics.measures.page``.

Each stands between ``<!-- table: NAME -->`` and ``<!-- end of table -->``; the rest of a page is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from metrics.measures.registry import HEADLINE, OVERLAY, STUDIED, find_measure
from metrics.tables.schemas import TABLES

DOCS = Path(__file__).parents[2] / "docs"

PAGES = ("results.md", "studies.md", "tables.md")

_TABLE = re.compile(r"(<!-- table: (.*?) -->\n\n).*?(\n\n<!-- end of table -->)", re.DOTALL)


def fill(text: str) -> str:
    """Return a page with the tables that it has places for."""
    tables = {"headline": _headline, "measures of studies": _studies, "overlay": _overlay}
    return _TABLE.sub(lambda place: place[1] + tables[place[2]]() + place[3], text)


def _headline() -> str:
    found = [(name, measure) for name in HEADLINE if (measure := find_measure(name)) is not None]
    return _tabulate(("name", "unit", "meaning"), [(f"`{name}`", it.unit, it.text) for name, it in found])


def _studies() -> str:
    rows = [
        (f"`{measure.name}`", measure.unit, family.title, measure.text, measure.by)
        for family in STUDIED
        for measure in family.measures
    ]
    return _tabulate(("measure", "unit", "of", "meaning", "counted by"), rows)


def _overlay() -> str:
    texts = {measure.name: measure.label for family in OVERLAY for measure in family.measures}
    rows = [(f"`{name}`", texts.get(name, "the instant")) for name in TABLES["overlay"]]
    return _tabulate(("column", "meaning"), rows)


def _tabulate(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


if __name__ == "__main__":
    for page in PAGES:
        path = DOCS / page
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
