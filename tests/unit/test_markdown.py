"""The documents are wrapped at 120 columns (docs/style.md). Links lead somewhere; files that are named exist."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
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


DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))

ROOMS = ("benchmarks", "docs", "harness", "metrics", "peer", "playbooks", "tests", "topologies")
NAMED = re.compile(rf"(?<![\w/.{{$-])((?:{'|'.join(ROOMS)})/[\w./<>*-]*+)(?!`\s+of commit)")
"""A file or folder of the checkout, with ``<name>`` for any name. What is ``of commit`` so and so may be gone."""

HISTORY = ("docs/adr", "CHANGELOG.md")
"""Documents that may name files of earlier versions."""


def without_code(text: str) -> str:
    """Return a document without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(document: Path) -> set[str]:
    """Return what links can name in a document: its headings as GitHub writes them, and ``<a id="...">``."""
    text = document.read_text("utf-8")
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(next(name for name in (anchor, *(f"{anchor}-{n}" for n in range(1, 99))) if name not in found))
    return found


def dead_links(document: Path) -> Iterator[str]:
    """Yield the links to files of the checkout and to anchors that do not exist."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(document.read_text("utf-8"))):
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        is_ours = "://" not in link and not link.startswith("mailto:")
        if is_ours and (not target.exists() or (anchor and anchor not in anchors(target))):
            yield link


def missing_files(text: str) -> Iterator[str]:
    """Yield the files and folders of the checkout that a text names and that do not exist."""
    for name in NAMED.findall(text):
        if not any(ROOT.glob(re.sub("<[^>]*>", "*", name).rstrip("/."))):
            yield name


FOLDERS = ("peer", "topologies", "harness", "metrics")
"""The packages of which design.md has a tree."""


LEFT_OUT = (
    *("*/__init__.py", "*/__main__.py", "harness/commands/*", "harness/planning/models/*", "harness/scaffold/*"),
    *(f"peer/protocols/*/{name}.py" for name in ("frames", "parameters", "observed_links")),
)
"""The modules that the trees need not name. Each ``*`` is any text, with any number of folders."""


def tree_lines(text: str) -> Iterator[tuple[dict[str, list[Path]], str, list[Path]]]:
    """Yield, for each line of the trees, its names with the places where they are, its words, and their folders.

    A tree is a block of code whose lines have names, joined by ", ", then two spaces or more and words. What is
    indented more than the line of a folder is in that folder, and the words of a folder's line are about it.
    """
    for block in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        folders = [(-1, [ROOT])]
        for indent, names, words in re.findall(r"^( {0,12})(\S+(?:, \S+)*)(?: {2,}(.*))?$", block, re.MULTILINE):
            while folders[-1][0] >= len(indent):
                folders.pop()
            parents = folders[-1][1]
            found = {name: [it / name for it in parents if (it / name).exists()] for name in names.split(", ")}
            if names.endswith("/"):
                folders.append((len(indent), [place for places in found.values() for place in places]))
            yield found, words, folders[-1][1]


def missing_in_trees(text: str) -> Iterator[str]:
    """Yield the files and folders that a tree names and that are not where it has them."""
    for found, _, _ in tree_lines(text):
        yield from (name for name, places in found.items() if not places)


def unnamed_in_trees(text: str, modules: Iterable[Path]) -> Iterator[str]:
    """Yield the modules that no tree names: no line begins with them, and no words about their folder have them."""
    named: set[Path] = set()
    for found, words, folders in tree_lines(text):
        named.update(place for places in found.values() for place in places)
        named.update(folder / name for folder in folders for name in re.findall(r"\w+\.py\b", words))
    for module in modules:
        name = str(module.relative_to(ROOT))
        if module not in named and not any(fnmatchcase(name, pattern) for pattern in LEFT_OUT):
            yield name


def trees_of_design() -> str:
    """Return the part of design.md that has the trees."""
    return (ROOT / "docs" / "design.md").read_text("utf-8").split("\n## 9. The files\n")[1]


def test_documents_are_wrapped() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}" for path in DOCUMENTS for line in long_lines(path.read_text("utf-8"))]
    assert found == []


def test_links_lead_to_files_and_anchors() -> None:
    found = [f"{path.relative_to(ROOT)}: {link}" for path in DOCUMENTS for link in dead_links(path)]
    assert found == []


def test_files_that_documents_name_exist() -> None:
    present = [path for path in DOCUMENTS if not str(path.relative_to(ROOT)).startswith(HISTORY)]
    found = [f"{path.relative_to(ROOT)}: {name}" for path in present for name in missing_files(path.read_text("utf-8"))]
    assert found == []


def test_files_of_the_trees_exist() -> None:
    assert list(missing_in_trees(trees_of_design())) == []


def test_every_package_is_in_a_tree() -> None:
    packages = [path.parent for room in FOLDERS for path in (ROOT / room).rglob("__init__.py")]
    folders = {f"{package.name}/" for package in packages if "scaffold/" not in str(package)}
    assert folders - set(re.findall(r"[\w-]+/", trees_of_design())) == set()


def test_every_module_is_in_a_tree() -> None:
    modules = sorted(path for room in FOLDERS for path in (ROOT / room).rglob("*.py"))
    assert list(unnamed_in_trees(trees_of_design(), modules)) == []


def test_missing_files_of_trees_are_found() -> None:
    lines = "peer/", "  wire.py, gone.py   frames", "  core/, runtime/   both", "    node.py, wire.py", "  trace.py"
    tree = "\n".join(("```", *lines, "```", ""))
    assert list(missing_in_trees(tree)) == ["gone.py", "wire.py"]


def test_modules_that_no_tree_names_are_found() -> None:
    tree = "\n".join(("```", "peer/", "  core/  node.py: it", "    parts.py  links.py", "  trace.py", "```", ""))
    names = "peer/core/node.py", "peer/core/parts.py", "peer/core/links.py", "peer/trace.py", "peer/core/trace.py"
    left_out = "peer/core/__init__.py", "peer/protocols/stan/frames.py", "peer/core/frames.py"
    found = unnamed_in_trees(tree, [ROOT / name for name in names + left_out])
    assert list(found) == ["peer/core/trace.py", "peer/core/frames.py"]


def test_missing_files_are_found() -> None:
    there = "`peer/wire.py`, (peer/core/), peer/*.py, `docs/protocols/<name>.md`. `peer/gone.py` of commit 1. x/peer/y"
    gone = ["peer/gone.py", "harness/<name>/gone.py", "metrics/gone/"]
    assert list(missing_files(there + "".join(f"\n  {name}" for name in gone))) == gone
    assert list(missing_files(there + "".join(f" `{name}`, as before" for name in gone))) == gone


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One `two`: three\n```\n# no heading\n```\n# Twice\n# Twice\n")
    good = "[a](other.md) [b](other.md#one-two-three) [c](other.md#twice-1) [d](https://example.org/x#y)"
    bad = ["gone.md", "other.md#no-heading", "#here"]
    page = tmp_path / "page.md"
    page.write_text(good + "".join(f" [x]({link})" for link in bad))
    assert list(dead_links(page)) == bad


def test_only_what_cannot_be_wrapped_is_exempt() -> None:
    words = "word " * 30
    exempt = ["| " + words, "# " + words, f"`{words}`", "- " + "x" * 130, f"```\n{words}\n```"]
    assert [text for text in exempt if list(long_lines(text))] == []
    assert list(long_lines(f"short\n{words}\n```\n{words}\n```\n- {words}")) == [2, 6]
