"""The measures that a study may name, and the reductions over a run's snapshots or epochs."""

from typing import Any

from metrics.measures.measure import Measure
from metrics.measures.registry import HEADLINE, STUDIED

OUTAGE, RECOVERY = "outage", "recovery"

REDUCTIONS = ("first", "last", "mean", "min", "max", "change", OUTAGE, RECOVERY)
"""What may stand before a measure's name: over a run's snapshots, or over its epochs or windows where messages
are measured. ``change`` is the last over the first, less one. ``recovery`` is the time from the first value below 1 to
the next that is not, ``outage`` to the first from which on none is. Both are 0 without a value below 1, and have no
value if there is none to end at."""

MEASURES: dict[str, Measure[Any]] = {measure.name: measure for family in STUDIED for measure in family.measures}

SEEN = frozenset(name for family in STUDIED if family.when == "snapshot" for name in family.names)
"""Those that are measured at the snapshots."""

WINDOWED = frozenset(name for family in STUDIED if family.when == "messages" for name in family.names)
"""Those that can be measured by windows of publication time."""

PUBLISHED = WINDOWED | {name for family in STUDIED if family.when == "epochs" for name in family.names}
"""Those that need publications."""

OF_RUNS = MEASURES.keys() & set(HEADLINE)
"""Those of runs whose peers are processes: their headline numbers."""


def split_reduction(shown: str) -> tuple[str, str]:
    """Return a reduction (empty if there is none) and a measure's name."""
    first, _, rest = shown.partition(" ")
    return (first, rest.strip()) if first in REDUCTIONS and rest else ("", shown)
