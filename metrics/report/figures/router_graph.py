"""Draws the graph of routers: the links that carried copies of messages, and how many of the same message."""

import igraph
import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from metrics.report.canvas import BLUE, GREY, ORANGE, PAPER, legend_above, plain_axes
from metrics.report.figures.chapter import Drawing, count, number, percent

MOST_ROUTERS = 500
"""With more links, single ones cannot be told apart."""

_WIDEST = 7.0
"""Width of the link with the most stress, in points."""


def draw_router_graph(links: pd.DataFrame) -> Drawing | None:
    """Draw the links of ``underlay_links``, both directions as one line, as wide as the larger stress of the two.

    The layout is by the fewest links between routers (T. Kamada and S. Kawai, An algorithm for drawing general
    undirected graphs, Information Processing Letters 31, 1989). The same graph has the same layout.
    """
    routers = int(max(links["src_router"].max(), links["dst_router"].max())) + 1
    if routers > MOST_ROUTERS:
        return None
    stress = (links["copies"] / links["messages"].where(links["messages"] > 0)).fillna(0)
    ends = np.sort(links[["src_router", "dst_router"]].to_numpy(dtype=int), axis=1)
    both = pd.Series(stress.to_numpy()).groupby([ends[:, 0], ends[:, 1]]).max()
    pairs, width = np.array(both.index.tolist()), both.to_numpy()
    places = np.array(igraph.Graph(n=routers, edges=pairs.tolist()).layout_kamada_kawai().coords)
    canvas, axes = plain_axes(height=5.0)
    used = width > 0
    pieces = places[pairs]
    axes.add_collection(LineCollection(pieces[~used], colors=GREY, linewidths=0.8, zorder=1))
    widths = _WIDEST * width[used] / max(1.0, float(width.max()))
    axes.add_collection(LineCollection(pieces[used], colors=ORANGE, linewidths=widths, zorder=2))
    axes.scatter(places[:, 0], places[:, 1], s=22, color=BLUE, edgecolor=PAPER, linewidth=0.5, zorder=3)
    axes.autoscale_view()
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.grid(visible=False)
    axes.set_frame_on(False)
    most = float(width.max())
    axes.add_line(Line2D([], [], color=ORANGE, linewidth=_WIDEST, label=f"stress {number(most)}"))
    axes.add_line(Line2D([], [], color=ORANGE, linewidth=_WIDEST / max(1.0, most), label="stress 1"))
    axes.add_line(Line2D([], [], color=GREY, linewidth=0.8, label="no copies"))
    legend_above(axes)
    return Drawing(
        canvas,
        f"{count(routers, 'router')} and {count(len(pairs), 'link')} between them, {percent(float(used.mean()))} of "
        f"which carried copies of messages. The largest stress is {number(most)}.",
    )
