"""Docstrings, comments and documents have none of the words that docs/style.md refuses, and docstrings are imperative.

The table of refused words is in docs/style.md alone. Code is not searched: neither names and strings nor
text in backticks.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
STYLE = "docs/style.md"
ROOMS = ("metrics", "harness", "peer", "topologies")
"""The packages that the rules hold for."""

GENERATED = "docs/reproduction/"
"""Pages made from records, with the words of papers."""

FIRST_WORDS = """
a all an another any at because before being between both by during each every everything for from how if in into it
most no none not nothing of on one only some that the there these they this those to up what whatever when where whether
which who whoever whom whose why with without
"""
NOT_IMPERATIVE = frozenset(FIRST_WORDS.split())
"""First words of sentences that are not imperative. So are words that end with a single s, such as ``Returns``."""

TEXTS = {"add", "figure"}
"""Decorators of functions whose docstring is a text for users: of a check, and the caption of a figure."""

CODE = re.compile(r"^ *```.*?^ *```|``.*?``|`[^`\n]*`", re.DOTALL | re.MULTILINE)
FIELD = re.compile(r"^ +\*{0,2}\w+(?:, \w+)*: ", re.MULTILINE)
"""The name in an entry of ``Args:`` or ``Attributes:``."""


def refused_words() -> dict[str, str]:
    """Return the refused words of the table, and what to write instead."""
    section = (CHECKOUT / STYLE).read_text(encoding="utf-8").split("## Words that CI refuses\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?!refused|-)(.+?) \| (.+?) \|$", section, re.MULTILINE)
    return {word: instead for words, instead in rows for word in words.split(", ")}


WORDS = refused_words()
REFUSED = re.compile(
    r"\b(" + "|".join(word.replace(" ", r"\s+") for word in sorted(WORDS, key=len, reverse=True)) + r")\b",
    re.IGNORECASE,
)


def find_refused(name: str, prose: str, first_line: int = 1) -> Iterator[str]:
    """Yield a message for every refused word.

    Args:
        name: the file.
        prose: a part of the file.
        first_line: the line of the file in which the part begins.
    """
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), prose)
    for found in REFUSED.finditer(prose):
        line = first_line + prose.count("\n", 0, found.start())
        word = " ".join(found[0].lower().split())
        yield f"{name}:{line}: '{word}' is not plain; write {WORDS[word]} ({STYLE})"


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, the texts below fields and the comments of a source, with their first lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, FIELD.sub("", node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def find_refused_in_source(name: str, source: str) -> Iterator[str]:
    """Yield a message for every refused word in the prose of a source. Few sources have such a word anywhere."""
    if REFUSED.search(source):
        for line, prose in prose_of(source):
            yield from find_refused(name, prose, line)


def find_not_imperative(name: str, source: str) -> Iterator[str]:
    """Yield a message for every function whose docstring does not begin with an imperative."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_exempt(node):
            continue
        line = (ast.get_docstring(node) or "").partition("\n")[0]
        word = re.split("[^A-Za-z]", line)[0].lower()
        if word in NOT_IMPERATIVE or re.search(r"[^s]s$", word):
            yield (
                f"{name}:{node.body[0].lineno}: the docstring of {node.name} begins with '{line.split()[0]}'; "
                f'write an imperative, such as "Return ..." ({STYLE})'
            )


def is_exempt(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a docstring need not be imperative: of a property, a test, or as a text for users."""
    names = set()
    for each in node.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        names.add(called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", ""))
    is_caption = node.returns is not None and ast.unparse(node.returns) == "Drawing | None"
    return bool(names & {"property", "cached_property", *TEXTS}) or is_caption or node.name.startswith("test_")


def documents() -> dict[str, str]:
    paths = [CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    paths += sorted((CHECKOUT / "docs").rglob("*.md"))
    pages = {str(path.relative_to(CHECKOUT)): path.read_text(encoding="utf-8") for path in paths}
    return {name: page for name, page in pages.items() if name != STYLE and not name.startswith(GENERATED)}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    paths = [path for room in ROOMS for path in sorted((CHECKOUT / room).rglob("*.py"))]
    return {str(path.relative_to(CHECKOUT)): path.read_text(encoding="utf-8") for path in paths}


def test_docstrings_and_comments_have_plain_words(sources: dict[str, str]) -> None:
    found = [message for name, source in sources.items() for message in find_refused_in_source(name, source)]
    assert found == [], "\n".join(found)


def test_documents_have_plain_words() -> None:
    found = [message for name, page in documents().items() for message in find_refused(name, page)]
    assert found == [], "\n".join(found)


def test_docstrings_of_functions_are_imperative(sources: dict[str, str]) -> None:
    found = [message for name, source in sources.items() for message in find_not_imperative(name, source)]
    assert found == [], "\n".join(found)


def test_a_refused_word_is_named_with_its_line_and_another_word() -> None:
    text = "One line.\nThe nodes to\nwhom it is sent. And those\nof them, and ``whom``.\n"
    assert list(find_refused("a.md", text)) == [
        f"""a.md:3: 'whom' is not plain; write "the nodes that ...", "which nodes" ({STYLE})""",
        f"""a.md:3: 'those of them' is not plain; write the noun again: "the packets that were lost" ({STYLE})""",
    ]


def test_code_may_have_any_word() -> None:
    source = 'def knock(whom):\n    """Open it.\n\n    Args:\n        whom: a node.\n    """\n    return "anew"\n'
    assert list(find_refused_in_source("a.py", source)) == []
    assert len(list(find_refused_in_source("a.py", source.replace("a node", "what it is upon")))) == 1
    assert list(find_refused("a.md", "Run:\n\n```sh\nmend `anew`\n```\n\nand `upon`.\n")) == []


@pytest.mark.parametrize("line", ["The nodes.", "Whether it is.", "Returns it.", "What it has."])
def test_other_first_lines_than_imperatives_are_refused(line: str) -> None:
    source = f'def number():\n    """{line}"""\n'
    (message,) = find_not_imperative("a.py", source)
    assert message.startswith(f"a.py:2: the docstring of number begins with '{line.split()[0]}'")
    assert list(find_not_imperative("a.py", f"@property\n{source}")) == []


@pytest.mark.parametrize("line", ["Return it.", "Pass it on.", "See ``other``.", "``x`` as a context."])
def test_imperatives_are_taken(line: str) -> None:
    assert list(find_not_imperative("a.py", f'def number():\n    """{line}"""\n')) == []
