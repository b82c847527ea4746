"""No modules import each other in a circle, not even for types or within functions."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
ROOMS = ("peer", "topologies", "harness", "metrics", "playbooks/reproduction")

Imports = dict[str, set[str]]

ALLOWED: Imports = {
    "harness.planes.userspace.trips": {"harness.planes.userspace.links"},  # parts of pairs, which have parts
    "metrics.executors.cluster": {"metrics.executors"},  # the interface of executors
}
"""Imports, for types alone, that may close a circle."""


def imported_names(source: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_graph(sources: Mapping[str, str]) -> Imports:
    """Return which modules each module imports. An import of a name is one of the module that has it."""
    graph: Imports = {}
    for module, source in sources.items():
        names = imported_names(source)
        found = {name if name in sources else name.rpartition(".")[0] for name in names}
        graph[module] = (found & sources.keys()) - {module}
    return graph


def find_circle(graph: Imports) -> list[str]:
    """Return the modules of a circle, each of which imports the one before; none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def our_sources() -> dict[str, str]:
    paths = [path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")]
    dotted = {path: path.relative_to(CHECKOUT).with_suffix("").as_posix().replace("/", ".") for path in paths}
    return {name.removesuffix(".__init__"): path.read_text() for path, name in dotted.items()}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = import_graph(our_sources())
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
    assert set(find_circle(import_graph(sources))) == {"a", "b.c", "d"}
    assert find_circle(import_graph(sources | {"d": "from b import name"})) == []
