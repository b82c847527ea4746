"""The documents' tables that are made from code."""

import re
from pathlib import Path

import pytest

from metrics.doc_tables import PAGES, fill, make_tables


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_documents_have_the_tables_of_the_code(page: Path) -> None:
    committed = page.read_text(encoding="utf-8")
    assert fill(committed) == committed, "run: python -m metrics.doc_tables"
    old, replaced = re.subn(r"(-->\n\n)\|.*?(\n\n<!-- end)", r"\1old\2", committed, flags=re.DOTALL)
    assert replaced
    assert fill(old) == committed


def test_every_table_is_in_one_document() -> None:
    places = [name for page in PAGES for name in re.findall("<!-- table: (.*) -->", page.read_text(encoding="utf-8"))]
    assert sorted(places) == sorted(make_tables())
    assert {"consistency", "certificate", "overload", "samples", "headline", "overlay"} <= set(places)


def test_a_page_is_filled_between_its_marks_alone() -> None:
    filled = fill("before\n\n<!-- table: headline -->\n\nold\n\n<!-- end of table -->\n\nafter\n")
    assert filled.startswith(
        "before\n\n<!-- table: headline -->\n\n| name | unit | meaning |\n|---|---|---|\n| `messages_p"
    )
    assert filled.endswith(" |\n\n<!-- end of table -->\n\nafter\n")
    assert "\nold\n" not in filled
