"""What touches what in a figure, by the extents of its own artists."""

from itertools import combinations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axis import Axis, Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import pts_to_midstep, pts_to_poststep
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_TOUCH_PX = 0.5


def faults(canvas: Canvas) -> list[str]:
    """What a reader could not read: texts over each other or beyond the edge, and legends over what is drawn."""
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw_without_rendering()
    texts = [(text.get_text(), text.get_window_extent(renderer)) for text in _shown_texts(canvas)]
    found = [f"'{a}' is over '{b}'" for (a, one), (b, other) in combinations(texts, 2) if _overlap(one, other)]
    edge = canvas.bbox.padded(_TOUCH_PX)
    found += [f"'{text}' leaves the figure" for text, box in texts if not _holds(edge, box)]
    for axes in canvas.axes:
        legend = axes.get_legend()
        if legend is not None:
            box = legend.get_window_extent(renderer)
            found += ["a legend is over axes" for other in canvas.axes if _overlap(box, other.get_window_extent())]
            found += ["a legend leaves the figure"] if not _holds(edge, box) else []
    return found


def covered_curves(canvas: Canvas) -> list[str]:
    """What the labels and keys of a legend within its axes stand upon: lines, marks, bars and error bars."""
    renderer = FigureCanvasAgg(canvas).get_renderer()
    canvas.draw_without_rendering()
    found = []
    for axes in canvas.axes:
        legend = axes.get_legend()
        if legend is not None:
            boxes = [each.get_window_extent(renderer) for each in (*legend.get_texts(), *legend.legend_handles) if each]
            drawn = [(line, _drawn(line), False) for line in axes.lines]
            for each in (*axes.patches, *axes.collections):
                paths = [each.get_path()] if isinstance(each, Patch) else each.get_paths()
                filled = not isinstance(each, LineCollection)
                drawn += [(each, path.transformed(each.get_transform()), filled) for path in paths]
            found += [
                f"the legend is over {_name(artist)}"
                for artist, path, filled in drawn
                if any(_meets(path, box, filled) for box in boxes)
            ]
    return list(dict.fromkeys(found))


def _name(artist: Artist) -> str:
    label = str(artist.get_label())
    return type(artist).__name__ if label.startswith("_") else f"'{label}'"


def _drawn(line: Line2D) -> Path:
    """A line as it is drawn, with its steps, in pixels; of a line that is not drawn, its marks as points."""
    path = line.get_path().transformed(line.get_transform())
    if line.get_linestyle() == "None":
        return Path(path.vertices, np.full(len(path.vertices), Path.MOVETO))
    steps = {"steps-post": pts_to_poststep, "steps-mid": pts_to_midstep}.get(str(line.get_drawstyle()))
    return path if steps is None else Path(np.column_stack(steps(*np.transpose(path.vertices))))


def _meets(path: Path, box: Bbox, filled: bool) -> bool:
    points = np.asarray(path.vertices)
    if any(box.contains(x, y) for x, y in points):
        return True
    is_line = path.codes is None or (path.codes != Path.MOVETO).any()
    return bool(is_line and len(points) > 1 and path.intersects_bbox(box, filled))


def _shown_texts(canvas: Canvas) -> list[Text]:
    axes = canvas.findobj(Axis)
    labels = {label for axis in axes for tick in (*axis.majorTicks, *axis.minorTicks) for label in _labels(tick)}
    drawn = {label for axis in axes for tick in _shown_ticks(axis) for label in _labels(tick)}
    texts = [text for text in canvas.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in texts if text not in labels or text in drawn]


def _shown_ticks(axis: Axis) -> list[Tick]:
    """The ticks within the axis, by its scale."""
    place = axis.get_transform().transform
    low, high = sorted(place(np.asarray(axis.get_view_interval())))
    slack = (high - low) * 1e-9
    ticks = (*axis.get_major_ticks(), *axis.get_minor_ticks())
    return [tick for tick in ticks if low - slack <= place(np.array([tick.get_loc()]))[0] <= high + slack]


def _labels(tick: Tick) -> tuple[Text, Text]:
    return tick.label1, tick.label2


def _overlap(one: Bbox, other: Bbox) -> bool:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    return width > _TOUCH_PX and min(one.y1, other.y1) - max(one.y0, other.y0) > _TOUCH_PX


def _holds(outer: Bbox, inner: Bbox) -> bool:
    return outer.x0 <= inner.x0 and inner.x1 <= outer.x1 and outer.y0 <= inner.y0 and inner.y1 <= outer.y1
