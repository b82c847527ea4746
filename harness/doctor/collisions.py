"""Other distributions that own one of Trellis's import names.

The rooms are imported under their plain names. An unrelated distribution that installs a package called ``metrics``
would be imported in place of ours, or be hidden by it: neither may happen silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

ROOMS = ("peer", "topologies", "harness", "metrics")
DISTRIBUTION = "trellis-testbed"
CHECKOUT = Path(__file__).parents[2]
"""The folder that holds the rooms: the checkout, or site-packages."""


def find_collisions(owners: Mapping[str, Iterable[str]], origins: Mapping[str, Path | None], home: Path) -> list[str]:
    """The collisions, a sentence each.

    Args:
        owners: import name -> distributions that install it (``packages_distributions``).
        origins: room -> the folder that ``import`` finds it in.
        home: the folder that holds our rooms.
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
    """Where ``import`` finds each room."""
    origins: dict[str, Path | None] = {}
    for room in ROOMS:
        spec = find_spec(room)
        origins[room] = Path(spec.origin).parent if spec is not None and spec.origin else None
    return origins


def current_collisions() -> list[str]:
    """The collisions in this Python environment."""
    return find_collisions(packages_distributions(), import_origins(), CHECKOUT)
