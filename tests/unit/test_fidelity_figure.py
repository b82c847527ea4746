"""The fidelity figure, by the data of its axes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from metrics.report.figures.network import fidelity

ZERO_NS = 7_000_000_000
SECOND = 1_000_000_000


def drawn(**tables: pd.DataFrame) -> dict[str, Line2D]:
    """The lines of both axes by their labels."""
    run: Any = SimpleNamespace(table=tables.get, zero_ns=ZERO_NS, duration_s=5.0)
    drawing = fidelity(run)
    assert drawing is not None
    return {str(line.get_label()): line for axes in drawing.canvas.axes for line in axes.get_lines()}


def table(seconds: dict[int, float]) -> pd.DataFrame:
    late_ns = [value * 1e6 for value in seconds.values()]
    columns = {f"lateness_{name}_ns": late_ns for name in ("p50", "p99", "max")}
    return pd.DataFrame(
        {"at_ns": [ZERO_NS + second * SECOND for second in seconds], "busy_ratio": list(seconds.values()), **columns}
    )


def test_isolated_seconds_have_markers_and_no_line_across_a_gap() -> None:
    lines = drawn(fidelity=table({-9: 0.2, 0: 0.3, 1: 0.4, 2: float("nan"), 3: 0.5}))
    for label in ("median", "data plane's core"):
        line = lines[label]
        assert line.get_marker() not in (None, "", "None")
        points = np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float)
        assert [tuple(point) if not np.isnan(point).any() else None for point in points.round(3)] == [
            (-9, 0.2), None, (0, 0.3), (1, 0.4), None, (3, 0.5),
        ]  # fmt: skip


def test_stalls_are_markers_at_their_beginning_as_high_as_they_are_long() -> None:
    stalls = pd.DataFrame(
        [
            ("host", 0, ZERO_NS - SECOND, ZERO_NS - SECOND + 2_500_000),
            ("plane", None, ZERO_NS + SECOND, ZERO_NS + SECOND + 20_000_000),
            ("host", 1, ZERO_NS + SECOND, ZERO_NS + SECOND + 19_000_000),
        ],
        columns=["source", "cpu", "start_ns", "end_ns"],
    )
    lines = drawn(fidelity=table({0: 0.3}), stalls=stalls)
    host, plane = lines["stall of the host"], lines["gap of the data plane"]
    assert (list(host.get_xdata()), list(host.get_ydata())) == ([-1.0, 1.0], [2.5, 19.0])
    assert (list(plane.get_xdata()), list(plane.get_ydata())) == ([1.0], [20.0])
    assert {host.get_linestyle(), plane.get_linestyle()} == {"None"}
    assert "stall of the host" not in drawn(fidelity=table({0: 0.3}), stalls=stalls[stalls["source"] == "plane"])
    assert "stall of the host" not in drawn(fidelity=table({0: 0.3}))
