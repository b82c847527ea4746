"""Text files are UTF-8 whatever the user's locale says: every call that opens one says so."""

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
ROOMS = ("peer", "topologies", "harness", "metrics", "benchmarks")
TEXT_MODE = re.compile(r"[rwax]\+?t?\+?")
OPENING = re.compile(r"\bopen\b|\b(?:read|write)_text\b")
"""What a source has that opens a file by such a call; others need not be parsed."""
NO_FILES = ("connection", "tarfile")
"""Names of objects whose ``open`` opens something else."""


def find_unspecified(source: str) -> list[int]:
    """Lines of calls that read or write a text file in the locale's encoding."""
    if not OPENING.search(source):
        return []
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if _is_text(call) and "encoding" not in {key.arg for key in call.keywords}]


def _is_text(call: ast.Call) -> bool:
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method in ("read_text", "write_text"):
        return True
    builtin = isinstance(call.func, ast.Name) and call.func.id == "open"
    if not builtin and (method != "open" or ast.unparse(call.func.value).endswith(NO_FILES)):  # type: ignore[attr-defined]
        return False
    given = [*call.args, *(key.value for key in call.keywords if key.arg == "mode")]
    words = [word.value for word in given if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    return any(map(TEXT_MODE.fullmatch, words)) or len(given) == (1 if builtin else 0)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("path.read_text()", True),
        ("path.read_text(errors='replace')", True),
        ("path.read_text(encoding='utf-8')", False),
        ("path.write_text(text)", True),
        ("path.open()", True),
        ("path.open('w')", True),
        ("path.open(mode='a')", True),
        ("path.open('w', encoding='utf-8')", False),
        ("path.open('ab', buffering=0)", False),
        ("open(path)", True),
        ("open(path, 'r+')", True),
        ("open(path, 'rb')", False),
        ("os.open(path, os.O_RDONLY)", False),
        ("gzip.open(path, 'rt')", True),
        ("self._connection.open()", False),
    ],
)
def test_the_search_finds_text_without_an_encoding(call: str, found: bool) -> None:
    assert find_unspecified(call) == ([1] if found else [])


@pytest.mark.parametrize("room", ROOMS)
def test_every_text_file_is_opened_with_an_encoding(room: str) -> None:
    files = sorted((CHECKOUT / room).rglob("*.py"))
    assert files
    found = {str(file.relative_to(CHECKOUT)): find_unspecified(file.read_text(encoding="utf-8")) for file in files}
    assert {file: lines for file, lines in found.items() if lines} == {}
