"""Makes the report's tables of the overlay: its measures over time, and its topics by how well they are connected."""

from typing import Any

import pandas as pd

from metrics.measures.registry import OVERLAY
from metrics.report.run import Run

_MOST_GROUPS = 20


def measures_over_time(run: Run) -> dict[str, Any] | None:
    """Return the overlay's measures at warm-up's first instants with links, at zero, midway and at the end.

    Returns:
        ``times`` (s from zero) and ``rows`` of a label and one value per time; None if there is nothing to show.
    """
    overlay = run.table("overlay")
    if overlay is None or overlay.empty:
        return None
    inside = overlay[(overlay["at_ns"] >= run.zero_ns) & (overlay["at_ns"] <= run.timeline.published_ns)]
    early = overlay[(overlay["at_ns"] < run.zero_ns) & (overlay["physical_links"] > 0)]
    measures = [each for family in OVERLAY for each in family.measures if each.name in overlay]
    chosen = pd.concat([early.head(1), inside.iloc[sorted({0, len(inside) // 2, len(inside) - 1})]])
    return {
        "times": [(at_ns - run.zero_ns) / 1e9 for at_ns in chosen["at_ns"]],
        "rows": [(each.label, [None if pd.isna(value) else value for value in chosen[each.name]]) for each in measures],
    }


def topics_by_shape(run: Run) -> list[dict[str, Any]]:
    """Return the topics at the workload's end by their number of components and diameter, worst first."""
    topics = run.last("overlay_topics")
    if topics is None or topics.empty:
        return []
    shapes = topics.groupby(["components", "diameter"])["subscribers"].agg(["count", "min", "max"]).reset_index()
    ordered = shapes.sort_values(["components", "diameter"], ascending=False).head(_MOST_GROUPS)
    rows: list[dict[str, Any]] = ordered.to_dict("records")
    return rows
