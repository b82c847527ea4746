"""How the code is built: modules, functions and their lengths, importers, and files that name one thing.

    trellis bench structure [--against CHECKOUT]

With ``--against`` the figures of another checkout stand beside this one's. ``files that name X`` counts Python files
outside tests in which the words of a protocol, an underlay, a check or a measure occur as a name or a string: about as
many as have to be touched to add another of its kind.
"""

import argparse
import ast
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
ROOMS = ("peer", "topologies", "harness", "metrics", "playbooks")
NAMED = {
    "protocol scribe": r"(?<![a-z])scribe(?![a-z])",
    "protocol spidercast": r"spidercast",
    "protocol topiary": r"topiary",
    "underlay unit-square": r"unit[-_]?square",
    "check publish_lag": r"publish_?lag",
    "measure link_sharing_ratio": r"link_sharing_ratio",
}
LARGE_CLASS = 20


def main(argv: list[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout, compared with this one")
    given = parser.parse_args(argv)
    columns = [figures(CHECKOUT)] if given.against is None else [figures(given.against), figures(CHECKOUT)]
    if given.json:
        print(json.dumps(columns[-1]))
        return 0
    for name in columns[-1]:
        print(f"{name:<44}" + "".join(f"{column[name]:>10g}" for column in columns))
    return 0


def figures(checkout: Path) -> dict[str, float]:
    """Every figure of a checkout by its name."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in _modules(checkout)}
    lengths = sorted(_length(node) for tree in trees.values() for node in ast.walk(tree) if _is_function(node))
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    importers = _importers(checkout, trees)
    found: dict[str, float] = {
        "modules": len(trees),
        "lines": sum(lines.values()),
        "lines of a module, median": statistics.median(lines.values()),
        "lines of a module, max": max(lines.values()),
        "functions": len(lengths),
        "lines of a function, median": statistics.median(lengths),
        "lines of a function, p90": lengths[int(len(lengths) * 0.9)],
        "modules with exactly one importer": sum(count == 1 for count in importers.values()),
        "modules below 60 lines": sum(count < 60 for count in lines.values()),
        f"classes with more than {LARGE_CLASS} methods": sum(_methods(tree) for tree in trees.values()),
    }
    for name, pattern in NAMED.items():
        found[f"files that name {name}"] = sum(
            _names(tree, re.compile(pattern, re.IGNORECASE)) for tree in trees.values()
        )
    return found


def _modules(checkout: Path) -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((checkout / room).rglob("*.py"))


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _length(node: ast.AST) -> int:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _methods(tree: ast.Module) -> int:
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return sum(sum(map(_is_function, each.body)) > LARGE_CLASS for each in classes)


def _importers(checkout: Path, trees: dict[Path, ast.Module]) -> Counter[str]:
    """How many other modules import each module; packages' ``__init__`` files are left out."""
    names = {_dotted(checkout, path) for path in trees if path.name != "__init__.py"}
    counts: Counter[str] = Counter(dict.fromkeys(names, 0))
    for path, tree in trees.items():
        imported: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
        counts.update((imported & names) - {_dotted(checkout, path)})
    return counts


def _dotted(checkout: Path, path: Path) -> str:
    return ".".join(path.relative_to(checkout).with_suffix("").parts)


def _names(tree: ast.Module, pattern: re.Pattern[str]) -> bool:
    """Whether a name, an attribute, an import or a string that is no docstring holds the pattern."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        words = [
            getattr(node, field, None)
            for field in ("id", "attr", "name", "module", "arg")
            if isinstance(getattr(node, field, None), str)
        ]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            words.append(node.value)
        if any(pattern.search(word) for word in words if word):
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
