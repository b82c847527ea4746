"""The coasts on maps, and the part of the planet that maps show."""

import json
from functools import cache
from importlib.resources import files
from typing import Final

SOUTH: Final = -58
NORTH: Final = 80
"""The degrees of latitude between which maps are drawn."""

Ring = list[list[float]]
"""A closed line of points, as longitude and latitude in degrees."""


@cache
def read_coasts() -> list[Ring]:
    """Return the coasts, without the Antarctic ones."""
    rings: list[Ring] = json.loads((files("metrics.report") / "data" / "land.json").read_text(encoding="utf-8"))[
        "rings"
    ]
    return [ring for ring in rings if max(latitude for _, latitude in ring) > SOUTH]
