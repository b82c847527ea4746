"""No modules import each other in a circle, not even for types or within functions."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.sources import CHECKOUT, imports_of

ROOMS = ("peer", "topologies", "harness", "metrics", "playbooks/reproduction")

Imports = dict[str, set[str]]

ALLOWED: Imports = {
    "harness.planes.userspace.trips": {"harness.planes.userspace.links"},  # parts of pairs, which have parts
    "metrics.executors.cluster": {"metrics.executors"},  # the interface of executors
}
"""Imports, for types alone, that may close a circle."""


def imported_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted names that statements of a module import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(modules: Mapping[str, Iterable[ast.AST]]) -> Imports:
    """Return which modules each module imports, given its statements. An import of a name is one of its module."""
    graph: Imports = {}
    for module, nodes in modules.items():
        names = imported_names(nodes)
        found = {name if name in modules else name.rpartition(".")[0] for name in names}
        graph[module] = (found & modules.keys()) - {module}
    return graph


def find_circle(graph: Imports) -> list[str]:
    """Return the modules of a circle, each of which imports the one before; none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def our_modules() -> dict[str, Iterable[ast.AST]]:
    paths = [path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")]
    dotted = {path: path.relative_to(CHECKOUT).with_suffix("").as_posix().replace("/", ".") for path in paths}
    return {name.removesuffix(".__init__"): imports_of(path) for path, name in dotted.items()}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = import_graph(our_modules())
    assert len(graph) > 400
    assert {module: graph[module] & names for module, names in ALLOWED.items()} == ALLOWED, "not needed any more"
    assert find_circle({module: names - ALLOWED.get(module, set()) for module, names in graph.items()}) == []


def test_a_circle_is_found() -> None:
    sources = {
        "a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from b.c import Name",
        "b": "",
        "b.c": "def late():\n    import d",
        "d": "from a import name",
    }
    modules = {name: list(ast.walk(ast.parse(source))) for name, source in sources.items()}
    assert set(find_circle(import_graph(modules))) == {"a", "b.c", "d"}
    assert find_circle(import_graph(modules | {"d": [ast.parse("from b import name").body[0]]})) == []
