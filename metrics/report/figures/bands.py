"""Bands on time axes: when the faults of a run held."""

from matplotlib.axes import Axes

from metrics.report.canvas import RED
from metrics.report.figures.chapter import NS_PER_S, count
from metrics.report.run import Run

OPACITY = 0.12


def mark_faults(run: Run, *panels: Axes) -> str:
    """Draw a band for the time of each fault on axes of seconds from the workload's zero.

    Args:
        run: the run.
        panels: complete axes; their limits stay.

    Returns:
        A sentence for the caption, with a space before it; empty without faults.
    """
    table = run.table("faults")
    if table is None:
        return ""
    during = table[table["phase"] == "during"]
    for axes in panels:
        limits = axes.get_xlim()
        for from_ns, to_ns in zip(during["from_ns"], during["to_ns"], strict=True):
            span_s = (from_ns - run.zero_ns) / NS_PER_S, (to_ns - run.zero_ns) / NS_PER_S
            axes.axvspan(*span_s, color=RED, alpha=OPACITY, linewidth=0, zorder=-0.5)
        axes.set_xlim(limits)
    return f" Red bands mark {count(len(during), 'fault')}."
