"""Draws the map: hosts, and the physical links between them as great circles."""

from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.text import Annotation

from metrics.foreign_text import printable
from metrics.report.canvas import BLUE, COAST, LAND, ORANGE, PAPER, distinct_points, in_readers_font, plain_axes
from metrics.report.coasts import NORTH, SOUTH, read_coasts
from metrics.report.figures.chapter import Drawing, count, number
from metrics.report.run import Run

_EARTH_KM = 6371.0
_MOST_LINKS = 400
"""With more links, single ones cannot be told apart, and their curves are most of the page's weight."""

_ROOM = 2.0
"""Pixels around a name."""

_PLACES = ((5, 3, "left"), (-5, 3, "right"), (5, -9, "left"), (-5, -9, "right"), (0, 6, "center"), (0, -13, "center"))
"""Where a label may stand beside its host: offset in points, and alignment."""


def draw_world(run: Run, width: float = 9.0) -> Drawing | None:
    """Hosts, and physical links as great circles halfway through the workload. Names for which there is no room are
    left out, and of more than 400 links every n-th is drawn.
    """
    hosts = run.hosts
    if hosts.empty or hosts["latitude"].isna().any():
        return None
    canvas, axes = plain_axes(width, height=width * 4 / 9)
    axes.add_patch(PathPatch(_land(), facecolor=LAND, edgecolor=COAST, linewidth=0.5))
    links = run.host_links()
    shown = links[:: max(1, -(-len(links) // _MOST_LINKS))]
    pieces = [piece for a, b in shown for piece in _arc(hosts, a, b)]
    faint = min(0.8, 60 / max(60, len(shown)))
    axes.add_collection(LineCollection(pieces, colors=BLUE, linewidths=0.8, alpha=faint))
    places = hosts[["longitude", "latitude"]].to_numpy(dtype=float)
    places = places[distinct_points(*places.T)]
    axes.scatter(places[:, 0], places[:, 1], s=18, color=ORANGE, edgecolor=PAPER, linewidth=0.5, zorder=3)
    axes.set(xlim=(-180, 180), ylim=(SOUTH, NORTH), xticks=[], yticks=[], aspect=1.25)
    axes.grid(visible=False)
    axes.set_frame_on(False)
    with in_readers_font():
        _name_sites(axes, hosts)
    places_only = f"{count(len(hosts), 'host')} at {count(hosts['site'].nunique(), 'site')}"
    return Drawing(canvas, f"{places_only}." if run.hides("physical_links") else _seen(hosts, links))


def _seen(hosts: pd.DataFrame, links: list[tuple[int, int]]) -> str:
    text = f"{count(len(hosts), 'host')} at {count(hosts['site'].nunique(), 'site')}, {count(len(links), 'link')}"
    if not links:
        return f"{text}."
    lengths_km = [_angle(*_ends(hosts, a, b)) * _EARTH_KM for a, b in links]
    ends, degrees = np.unique(np.array(links), return_counts=True)
    most = hosts["site"][ends[degrees.argmax()]]
    return (
        f"{text}. The median link spans {number(float(np.median(lengths_km)))} km, the longest "
        f"{number(max(lengths_km))} km. A host in {most} has the most links: {degrees.max()}."
    )


@cache
def _land() -> Outline:
    """Return the coasts as one path."""
    shown = [np.array(ring) for ring in read_coasts()]
    return Outline.make_compound_path(*(Outline(np.vstack((ring, ring[:1])), closed=True) for ring in shown))


def _ends(hosts: pd.DataFrame, a: int, b: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return two hosts as unit vectors (3,)."""
    latitude, longitude = np.radians(hosts.loc[[a, b], ["latitude", "longitude"]].to_numpy(dtype=float)).T
    first, second = np.stack(
        (np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)), axis=1
    )
    return first, second


def _angle(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    return float(np.arccos(np.clip(first @ second, -1, 1)))


def _arc(hosts: pd.DataFrame, a: int, b: int) -> list[npt.NDArray[np.float64]]:
    """Return the great circle between two hosts as (longitude, latitude) pieces, cut at the map's edge."""
    first, second = _ends(hosts, a, b)
    angle = _angle(first, second)
    if angle < 1e-6 or angle > np.pi - 1e-6:
        return []
    step = np.linspace(0, 1, 3 + int(np.degrees(angle) / 5))[:, None]
    path = (first * np.sin((1 - step) * angle) + second * np.sin(step * angle)) / np.sin(angle)
    latitude = np.degrees(np.arcsin(np.clip(path[:, 2], -1, 1)))
    longitude = np.degrees(np.arctan2(path[:, 1], path[:, 0]))
    cuts = np.flatnonzero(np.abs(np.diff(longitude)) > 180) + 1
    return [piece for piece in np.split(np.stack((longitude, latitude), axis=1), cuts) if len(piece) > 1]


def _name_sites(axes: Axes, hosts: pd.DataFrame) -> None:
    """Write the name of each site beside it if it touches no other name and no host, within the map."""
    canvas = axes.get_figure(root=True)
    assert canvas is not None
    canvas.draw_without_rendering()
    renderer = canvas._get_renderer()  # type: ignore[attr-defined]  # what Text measures itself with
    size = 3.0 * canvas.dpi / 72
    sites = hosts.drop_duplicates("site")
    points = axes.transData.transform(hosts[["longitude", "latitude"]].to_numpy(dtype=float))
    taken = np.hstack((points - size, points + size))
    edge = np.asarray(axes.get_window_extent(renderer).extents)
    for site in sites.itertuples():
        for right, up, side in _PLACES:
            label: Annotation = axes.annotate(
                printable(site.site), (site.longitude, site.latitude), (right, up),
                textcoords="offset points", ha=side, fontsize=7.5,
            )  # fmt: skip
            box = np.asarray(label.get_window_extent(renderer).padded(_ROOM).extents)
            inside = np.r_[box[:2] - edge[:2], edge[2:] - box[2:]].min() >= 0
            if inside and not ((box[:2] < taken[:, 2:]) & (box[2:] > taken[:, :2])).all(axis=1).any():
                taken = np.vstack((taken, box))
                break
            label.remove()
