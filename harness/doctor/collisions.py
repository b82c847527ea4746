"""Other distributions that own one of Trellis's import names.

Trellis's top-level packages, the rooms, have common names. An unrelated distribution with a package ``metrics`` would
be imported instead of Trellis's, or be hidden by it. Neither may happen silently.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

ROOMS = ("peer", "topologies", "harness", "metrics")
DISTRIBUTION = "trellis-testbed"
CHECKOUT = Path(__file__).parents[2]
"""The folder that holds the rooms: the checkout, or site-packages."""


def find_collisions(owners: Mapping[str, Iterable[str]], origins: Mapping[str, Path | None], home: Path) -> list[str]:
    """Return the collisions, one sentence each.

    Args:
        owners: import name -> distributions that install it (``packages_distributions``).
        origins: room -> the folder that ``import`` finds it in.
        home: the folder that holds the rooms.
    """
    found = []
    for room in ROOMS:
        strangers = sorted(set(owners.get(room, ())) - {DISTRIBUTION})
        if strangers:
            found.append(f"the import name {room!r} is also owned by the distribution {', '.join(strangers)}")
        elif origins.get(room) != home / room:
            found.append(f"the import name {room!r} leads to {origins.get(room)}, not to {home / room}")
    return found


def import_origins() -> dict[str, Path | None]:
    """Return the folder in which ``import`` finds each room."""
    origins: dict[str, Path | None] = {}
    for room in ROOMS:
        spec = find_spec(room)
        origins[room] = Path(spec.origin).parent if spec is not None and spec.origin else None
    return origins


@cache
def current_collisions() -> list[str]:
    """Return the collisions in this Python environment, which are looked for once per process: that takes 70 ms."""
    return find_collisions(packages_distributions(), import_origins(), CHECKOUT)
