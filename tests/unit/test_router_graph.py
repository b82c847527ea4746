"""The drawing of a graph of routers shows each link once, as wide as its stress."""

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection, PathCollection

from metrics.report.figures.router_graph import MOST_ROUTERS, draw_router_graph

LINKS = pd.DataFrame(
    [(0, 1, 6, 2), (1, 0, 2, 2), (1, 2, 5, 5), (2, 1, 0, 0), (2, 3, 0, 0), (3, 2, 0, 0)],
    columns=["src_router", "dst_router", "copies", "messages"],
)


def test_a_line_is_as_wide_as_the_stress_of_its_stronger_direction() -> None:
    drawing = draw_router_graph(LINKS)
    assert drawing is not None
    axes = drawing.canvas.axes[0]
    unused, used = (each for each in axes.collections if isinstance(each, LineCollection))
    (routers,) = (each for each in axes.collections if isinstance(each, PathCollection))
    places = np.asarray(routers.get_offsets())
    assert len(places) == 4
    assert np.allclose(np.array(unused.get_segments()), [places[[2, 3]]])
    assert np.allclose(np.array(used.get_segments()), [places[[0, 1]], places[[1, 2]]])
    wide, narrow = used.get_linewidths()
    assert wide == 3 * narrow
    assert "4 routers and 3 links" in drawing.seen
    assert "The largest stress is 3" in drawing.seen


def test_a_graph_of_too_many_routers_is_not_drawn() -> None:
    assert draw_router_graph(pd.DataFrame([(0, MOST_ROUTERS, 1, 1)], columns=LINKS.columns)) is None
