"""The kinds of graphs that Trellis generates: one registry.

The kind ``fat-tree`` is the function ``fat_tree`` of ``topologies.generated_graphs``. That module is imported when it
is used, since the registry is read with every experiment file. To add a kind, write its function and enter it here with
its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topologies.generated_graphs import GeneratedGraph

GRAPHS: dict[str, tuple[str, ...]] = {
    "dumbbell": ("delay_ms",),
    "fat-tree": ("pods", "delay_ms"),
    "waxman": ("routers", "waxman_alpha", "waxman_beta", "side_ms"),
    "barabasi-albert": ("routers", "links_per_router", "side_ms"),
}
"""The keys of ``[underlay]`` that a kind's function takes before the generator, in their order."""

GRAPH_KEYS = frozenset(key for keys in GRAPHS.values() for key in keys) - {"delay_ms", "side_ms"}
"""The keys that only graphs have."""


def generate(kind: str, values: Mapping[str, float], draws: Random) -> GeneratedGraph:
    """Generate a graph.

    Args:
        kind: one of ``GRAPHS``.
        values: by their keys; others are ignored.
        draws: where everything random comes from.
    """
    function = getattr(import_module("topologies.generated_graphs"), kind.replace("-", "_"))
    made: GeneratedGraph = function(*(values[key] for key in GRAPHS[kind]), draws)
    return made
