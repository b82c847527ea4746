"""Figures of the overlay: which nodes are linked."""

from typing import Final

import numpy as np

from metrics.report.canvas import BLUE, GREEN, GREY, ORANGE, axes_grid, legend_above, plain_axes, whole_numbers
from metrics.report.figures.bands import mark_faults
from metrics.report.figures.chapter import Chapter, Drawing, count, number
from metrics.report.figures.world import draw_world
from metrics.report.run import Run

CHAPTER: Final = Chapter(
    "overlay",
    "Overlay",
    (
        *("degree_mean", "degree_max", "view_size_total_mean", "view_size_unique_mean", "link_sharing_ratio"),
        *("logical_per_physical_link", "logical_per_physical_link_on_wire"),
        *("expressions_per_link_mean", "topics_partitioned", "topic_diameter_max"),
    ),
)

_MARKS = 60
_MARK_AREA = 24

CHAPTER.figure(
    "The overlay on the planet",
    "physical_links",
    name="map",
    meaning="""Where the connections run. Long arcs cost time with each hop; an overlay that prefers near
    neighbours has mostly short arcs, and a few long arcs that join the continents.""",
)(draw_world)


@CHAPTER.figure(
    "Logical and physical links",
    "sharing",
    meaning="""A logical link is a topic shared with a neighbour, a physical link is a TCP connection. The more logical
    links share a physical one, the fewer connections a node needs. Once every link has been used, the marks, which
    come from the captured packets, lie on the lines.""",
)
def link_sharing(run: Run) -> Drawing | None:
    """Lines: what the peers traced. Marks: what the captures show: connections from both SYNs to the first FIN or RST,
    and traced logical links over which data has been seen. The checks open
    connections and logical links hold the two together.
    """
    series = run.grouped("sharing", ["source", "at_ns"], "view_size_total", "degree", by="mean", honest=True)
    if series is None or series.empty or run.hides("view_size_total", "degree"):
        return None
    seconds = (series["at_ns"] - run.zero_ns) / 1e9
    canvas, axes = plain_axes()
    traced, wire, within = series["source"] == "trace", series["source"] == "wire", seconds <= run.duration_s
    measures = (("view_size_total", "logical links", BLUE, "+"), ("degree", "physical links", ORANGE, "x"))
    seen = []
    for column, label, color, _ in measures:
        values = series.loc[traced, column]
        axes.plot(seconds[traced], values, color=color, label=f"{label}, traces", drawstyle="steps-post")
        if (within & traced).any():
            seen.append(f"{number(series.loc[within & traced, column].iloc[-1])} {label} per node")
    text = f"At the workload's end {' and '.join(seen) or 'nothing'} by the traces"
    every = max(1, int(wire.sum()) // _MARKS)
    for column, label, color, marker in measures if wire.any() else ():
        values = series.loc[wire, column]
        axes.plot(seconds[wire], values, marker, color=color, markersize=5, markevery=every, label=f"{label}, wire")
    if (within & wire).any():
        last = series[within & wire].iloc[-1]
        text += f", {number(last['view_size_total'])} and {number(last['degree'])} on the wire"
    axes.margins(y=0.08)
    axes.set(xlabel="time from the workload's zero (s)", ylabel="mean per node", ylim=(0, None))
    legend_above(axes)
    return Drawing(canvas, f"{text}.{mark_faults(run, axes)}")


@CHAPTER.figure(
    "Degree distribution",
    "overlay_degrees",
    meaning="""Whether all nodes carry about the same. A single peak is even; a long tail to the right means that a few
    nodes hold many connections, and would hurt most if they failed.""",
)
def degrees(run: Run) -> Drawing | None:
    """Nodes with each number of links at the workload's end: physical links, physical links that the node opened,
    different nodes in a node's views, and nodes whose views contain it.
    """
    nodes = run.last("overlay_degrees")
    if nodes is None or run.hides("degree", "opened", "view_size_unique") or not nodes["degree"].any():
        return None
    canvas, axes = plain_axes(height=2.9)
    values, counts = np.unique(nodes["degree"], return_counts=True)
    mean = float(nodes["degree"].mean())
    bars = axes.bar(values, counts, color=BLUE, alpha=0.45, width=0.85, label=f"physical links, mean {mean:.2f}")
    curves = [("opened", "opened by it", GREY, "-"), ("view_size_unique", "in its views", ORANGE, "--")]
    if not nodes["in_degree"].equals(nodes["view_size_unique"].rename("in_degree")):
        curves.append(("in_degree", "have it in a view", GREEN, ":"))
    for column, label, color, line in curves:
        by_links = np.bincount(nodes[column])
        around = np.arange(-1, len(by_links) + 1)
        label = f"{label}, mean {float(nodes[column].mean()):.2f}"
        axes.step(around, np.r_[0, by_links, 0], where="mid", color=color, linestyle=line, linewidth=1.4, label=label)
    axes.margins(y=0.06)
    axes.set(xlabel="links of a node", ylabel="nodes", ylim=(0, None))
    axes.set_xlim(left=-0.6)
    for axis in (axes.xaxis, axes.yaxis):
        whole_numbers(axis)
    legend_above(axes, first=[bars])
    opened = float(nodes["opened"].mean())
    seen = (
        f"{count(len(nodes), 'node')} with {values[0]:,} to {values[-1]:,} physical links, {number(mean)} on average, "
        f"of which a node opened {number(opened)}. Views contain {number(float(nodes['view_size_unique'].mean()))} "
        f"different nodes on average and at most {nodes['view_size_unique'].max():,}."
    )
    return Drawing(canvas, seen)


@CHAPTER.figure(
    "Topic overlays",
    "overlay_topics",
    meaning="""Whether the subscribers of a topic can pass its messages on among themselves. With one component they
    can; with more, a message needs nodes outside the topic to reach them all. The diameter bounds the hops.""",
)
def topic_overlays(run: Run) -> Drawing | None:
    """Each topic's subscribers and the physical links among them at the workload's end: how many components there are,
    and the longest of the shortest paths within one. A larger mark stands for more topics in the same place.
    """
    topics = run.last("overlay_topics")
    if topics is None or topics.empty or run.hides("components"):
        return None
    canvas, panels = axes_grid(3.6, rows=2, sharex=True)
    shown = (("components", "components", BLUE), ("diameter", "diameter (links)", ORANGE))
    for axes, (column, label, color) in zip(panels, shown, strict=True):
        places, many = np.unique(topics[["subscribers", column]].to_numpy(), axis=0, return_counts=True)
        for size in np.unique(many):
            x, y = places[many == size].T
            axes.scatter(x, y, s=_MARK_AREA * size, color=color, alpha=0.75, linewidth=0)
        axes.set(ylabel=label, ylim=(0, max(1, topics[column].max()) * 1.2))
        whole_numbers(axes.yaxis, most=5)
    panels[1].set(xlabel="subscribers of the topic")
    whole_numbers(panels[1].xaxis)
    subscribers, apart = topics["subscribers"], topics[topics["components"] > 1]
    worst = f" (at most {apart['components'].max():,} components)" if len(apart) else ""
    seen = (
        f"{count(len(topics), 'topic')} with {subscribers.min():,} to {subscribers.max():,} subscribers: "
        f"{len(topics) - len(apart):,} with one component, {len(apart):,} with more{worst}. The largest diameter is "
        f"{count(int(topics['diameter'].max()), 'link')}."
    )
    return Drawing(canvas, seen)
