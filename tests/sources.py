"""Our sources, for tests that search them."""

import ast
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


@cache
def imports_of(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the statements of a source that import, anywhere in it. Each source is parsed once in a process."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
