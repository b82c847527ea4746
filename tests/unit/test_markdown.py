"""The documents are wrapped at 120 columns (docs/style.md), except what cannot be wrapped."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDTH = 120
UNBREAKABLE = re.compile(r"\||#|<!--|\s*(- |1\. )?`[^`]*`\S*$|\s*(- |1\. )?\[?\S*$")
"""A row of a table, a heading, a comment, or a line that is one code span, one link or one word."""


def long_lines(text: str) -> Iterator[int]:
    """Yield the numbers of the lines that should be wrapped, from 1."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif len(line) > WIDTH and not in_code and not UNBREAKABLE.match(line):
            yield number


def test_documents_are_wrapped() -> None:
    documents = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    documents += sorted((ROOT / "docs").rglob("*.md"))
    found = [f"{path.relative_to(ROOT)}:{line}" for path in documents for line in long_lines(path.read_text("utf-8"))]
    assert found == []


def test_only_what_cannot_be_wrapped_is_exempt() -> None:
    words = "word " * 30
    exempt = ["| " + words, "# " + words, f"`{words}`", "- " + "x" * 130, f"```\n{words}\n```"]
    assert [text for text in exempt if list(long_lines(text))] == []
    assert list(long_lines(f"short\n{words}\n```\n{words}\n```\n- {words}")) == [2, 6]
