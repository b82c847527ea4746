"""The report's figures: each takes a finished run and draws one answer.

A figure never computes a new measure: it shows columns of the tables, so that every curve can be checked with a query.
"""

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator
from msgspec import Struct

from metrics.report.canvas import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, axes_grid, plain_axes, plot_cdf
from metrics.report.run import Run

_NEXT_S = 1.5
"""Seconds of a table that are no further apart follow each other."""

_Draw = Callable[[Run], Canvas | None]


class Figure(Struct, frozen=True):
    """A figure of the report. ``draw`` returns None where the run has nothing to show."""

    name: str
    title: str
    caption: str
    draw: _Draw


FIGURES: list[Figure] = []
"""In the order of the report."""


def _figure(title: str, name: str = "") -> Callable[[_Draw], _Draw]:
    """Enter a function in ``FIGURES``. Its docstring is the caption, and its name the figure's if none is given."""

    def enter(draw: _Draw) -> _Draw:
        caption = " ".join((draw.__doc__ or "").split())
        FIGURES.append(Figure(name or draw.__name__.replace("_", "-"), title, caption, draw))
        return draw

    return enter


@_figure("The overlay on the planet", name="map")
def world(run: Run) -> Canvas | None:
    """Hosts, and each physical link as a great circle."""
    hosts = run.hosts
    if hosts.empty or hosts["latitude"].isna().any():
        return None
    canvas, axes = plain_axes(width=9.6, height=4.9)
    rings = json.loads((files("metrics.report") / "data" / "land.json").read_text(encoding="utf-8"))["rings"]
    axes.add_collection(PolyCollection([np.array(ring) for ring in rings], facecolor="#e6ebe4", edgecolor="#c8d0c5"))
    segments = [_arc(hosts, a, b) for a, b in run.host_links()]
    pieces = [piece for segment in segments for piece in segment]
    faint = min(0.8, 60 / max(60, len(segments)))
    axes.add_collection(LineCollection(pieces, colors=BLUE, linewidths=0.7, alpha=faint))
    axes.scatter(hosts["longitude"], hosts["latitude"], s=16, color=ORANGE, edgecolor="white", linewidth=0.5, zorder=3)
    if len(hosts) <= 40:
        for row in hosts.itertuples():
            axes.annotate(row.site, (row.longitude, row.latitude), (3, 3), textcoords="offset points", fontsize=6.5)
    axes.set(xlim=(-180, 180), ylim=(-58, 80), xticks=[], yticks=[], aspect=1.25)
    axes.grid(visible=False)
    axes.set_frame_on(False)
    return canvas


def _arc(hosts: pd.DataFrame, a: int, b: int) -> list[npt.NDArray[np.float64]]:
    """The great circle between two hosts as (longitude, latitude) pieces, cut where it leaves the map's edge."""
    points = np.radians(hosts.loc[[a, b], ["latitude", "longitude"]].to_numpy(dtype=float))
    ends = np.stack(
        (np.cos(points[:, 0]) * np.cos(points[:, 1]), np.cos(points[:, 0]) * np.sin(points[:, 1]), np.sin(points[:, 0]))
    )
    angle = np.arccos(np.clip(ends[:, 0] @ ends[:, 1], -1, 1))
    if angle < 1e-6 or angle > np.pi - 1e-6:
        return []
    step = np.linspace(0, 1, 32)
    path = (ends[:, :1] * np.sin((1 - step) * angle) + ends[:, 1:] * np.sin(step * angle)) / np.sin(angle)
    latitude = np.degrees(np.arcsin(np.clip(path[2], -1, 1)))
    longitude = np.degrees(np.arctan2(path[1], path[0]))
    cuts = np.flatnonzero(np.abs(np.diff(longitude)) > 180) + 1
    return [piece for piece in np.split(np.stack((longitude, latitude), axis=1), cuts) if len(piece) > 1]


@_figure("Propagation delay")
def delay_cdf(run: Run) -> Canvas | None:
    """From publication to first delivery at each subscriber; an undelivered pair keeps the curve below 1.

    Dashed: the one-way delay of the direct path of the same pairs.
    """
    deliveries = run.honest("deliveries")
    if deliveries is None or deliveries.empty:
        return None
    canvas, axes = plain_axes()
    latency = deliveries["latency_ms"].dropna().sort_values().to_numpy()
    axes.step(latency, np.arange(1, len(latency) + 1) / len(deliveries), where="post", label="overlay", color=BLUE)
    plot_cdf(axes, deliveries["direct_delay_ms"], label="direct path", color=GREY, linestyle="--")
    axes.set(xlabel="delay from publication (ms)", ylabel="share of expected deliveries", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    axes.legend(loc="lower right")
    return canvas


@_figure("Delivery ratio")
def delivery_ratio(run: Run) -> Canvas | None:
    """Share of expected deliveries that were made, by second of publication and by topic."""
    deliveries = run.honest("deliveries")
    if deliveries is None or deliveries.empty:
        return None
    delivered = deliveries["delivered_ns"].notna()
    second = (deliveries["publish_ns"] - run.zero_ns) // 1_000_000_000
    by_second = delivered.groupby(second).mean()
    by_topic = np.sort(delivered.groupby(deliveries["topic"]).mean().to_numpy())
    canvas, (left, right) = axes_grid(3.0, columns=2, width_ratios=(3, 2), sharey=True)
    left.plot(by_second.index, by_second.to_numpy(), marker="o", markersize=3, color=BLUE)
    left.set(xlabel="second of publication", ylabel="delivery ratio", ylim=(0, 1.03))
    right.bar(np.arange(len(by_topic)), by_topic, color=GREEN, width=0.9)
    right.set(xlabel=f"{len(by_topic)} topics, sorted")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    return canvas


@_figure("Logical and physical links")
def link_sharing(run: Run) -> Canvas | None:
    """A logical link is a topic shared with a neighbour, a physical link is a TCP connection.

    Lines: what the peers traced. Marks: what the captures show: connections between both Hellos and the Bye, and
    logical links over which data has been seen. The checks link agreement and logical links hold the two together.
    """
    sharing = run.honest("sharing")
    if sharing is None or sharing.empty:
        return None
    series = sharing.groupby(["source", "at_ns"])[["view_size_total", "degree"]].mean().reset_index()
    canvas, axes = plain_axes()
    traced = series[series["source"] == "trace"]
    seconds = (traced["at_ns"] - run.zero_ns) / 1e9
    axes.plot(seconds, traced["view_size_total"], color=BLUE, label="logical links, traces", drawstyle="steps-post")
    axes.plot(seconds, traced["degree"], color=ORANGE, label="physical links, traces", drawstyle="steps-post")
    wire = series[series["source"] == "wire"]
    seconds = (wire["at_ns"] - run.zero_ns) / 1e9
    axes.plot(seconds, wire["view_size_total"], "+", color=BLUE, markersize=7, label="logical links, wire")
    axes.plot(seconds, wire["degree"], "x", color=ORANGE, markersize=5, label="physical links, wire")
    highest = float(series[["view_size_total", "degree"]].to_numpy().max())
    axes.set(xlabel="time from the workload's zero (s)", ylabel="mean per node", ylim=(0, max(1.3 * highest, 1)))
    axes.legend(loc="upper center", ncols=2)
    return canvas


@_figure("Degree distribution")
def degrees(run: Run) -> Canvas | None:
    """At the workload's end, the distribution over nodes of the number of physical links, of those that the node
    opened, of different nodes in a node's views, and of nodes whose views contain it.
    """
    nodes = run.last("overlay_degrees")
    if nodes is None or not nodes["degree"].any():
        return None
    canvas, axes = plain_axes(height=2.8)
    values, counts = np.unique(nodes["degree"], return_counts=True)
    mean = float(nodes["degree"].mean())
    axes.bar(values, counts, color=BLUE, alpha=0.45, width=0.85, label=f"physical links, mean {mean:.2f}")
    curves = [("opened", "physical links that it opened", GREY), ("view_size_unique", "nodes in its views", ORANGE)]
    if not nodes["in_degree"].equals(nodes["view_size_unique"].rename("in_degree")):
        curves.append(("in_degree", "nodes in whose views it is", GREEN))
    for column, label, color in curves:
        values, counts = np.unique(nodes[column], return_counts=True)
        mean = float(nodes[column].mean())
        axes.plot(values, counts, color=color, marker=".", linewidth=1, label=f"{label}, mean {mean:.2f}")
    axes.set(xlabel="links of a node", ylabel="nodes")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return canvas


@_figure("Topic overlays")
def topic_overlays(run: Run) -> Canvas | None:
    """Each topic's subscribers and the physical links among them at the workload's end: how many parts there are, and
    the longest of the shortest paths within one.
    """
    topics = run.last("overlay_topics")
    if topics is None or topics.empty:
        return None
    canvas, (upper, lower) = axes_grid(3.8, rows=2, sharex=True)
    upper.plot(topics["subscribers"], topics["components"], "o", color=BLUE, markersize=4, alpha=0.6)
    upper.set(ylabel="components", ylim=(0, None))
    lower.plot(topics["subscribers"], topics["diameter"], "o", color=ORANGE, markersize=4, alpha=0.6)
    lower.set(xlabel="subscribers of the topic", ylabel="diameter (links)", ylim=(0, None))
    for axes in (upper, lower):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return canvas


@_figure("Learning")
def learning(run: Run) -> Canvas | None:
    """Mean propagation delay, delivery ratio and the score of the neighbours that nodes keep, by epoch.

    Nodes begin with random neighbours.
    """
    epochs = run.table("epochs")
    if epochs is None or epochs.empty:
        return None
    canvas, panels = axes_grid(5.4, rows=3, sharex=True)
    curves = (("latency_ms_mean", "mean delay (ms)", BLUE), ("delivery_ratio", "delivery ratio", GREEN))
    for axes, (column, label, color) in zip(panels, (*curves, ("score_mean", "mean score", ORANGE)), strict=True):
        axes.plot(epochs["epoch"], epochs[column], color=color, marker=".")
        axes.set_ylabel(label)
    panels[0].set_ylim(bottom=0)
    panels[2].set_xlabel("epoch")
    panels[2].xaxis.set_major_locator(MaxNLocator(integer=True))
    return canvas


@_figure("Duplicates")
def duplicates(run: Run) -> Canvas | None:
    """Copies of a message that a subscriber received after the first."""
    deliveries = run.honest("deliveries")
    if deliveries is None or deliveries.empty:
        return None
    received = deliveries[deliveries["delivered_ns"].notna()]
    if received.empty:
        return None
    canvas, axes = plain_axes(height=2.8)
    values, counts = np.unique(received["copies"] - 1, return_counts=True)
    axes.bar(values, counts / counts.sum(), color=ORANGE, width=0.85)
    axes.set(xlabel="duplicate copies received with a delivery", ylabel="share of deliveries")
    return canvas


@_figure("Traffic overhead")
def traffic_overhead(run: Run) -> Canvas | None:
    """Share of the copies that arrive at nodes that subscribe to none of the message's topics: by second of
    publication, and of each node that received a copy.
    """
    copies = run.received()
    if copies is None or copies.empty:
        return None
    second = (copies["publish_ns"] - run.zero_ns) // 1_000_000_000
    by_second = copies["at_relay"].groupby(second).mean()
    canvas, (left, right) = axes_grid(3.0, columns=2, width_ratios=(3, 2))
    left.plot(by_second.index, by_second.to_numpy(), marker="o", markersize=3, color=ORANGE)
    left.set(xlabel="second of publication", ylabel="share of copies at relays", ylim=(0, 1.03))
    plot_cdf(right, copies["at_relay"].groupby(copies["dst_node"]).mean(), color=ORANGE)
    right.set(xlabel="share of a node's copies", ylabel="share of nodes", xlim=(0, 1), ylim=(0, 1.02))
    return canvas


@_figure("Where a hop's delay arises")
def hop_delay(run: Run) -> Canvas | None:
    """Send buffer: from the peer's write to the first byte on the emulated network.

    Wire: to the last byte in order at the receiver's interface. Receive: to the peer's read.
    """
    if not len(run.values("hops", "d_wire_ns")):
        return None
    canvas, axes = plain_axes()
    parts = (("d_sndbuf_ns", "send buffer", ORANGE), ("d_wire_ns", "wire", BLUE), ("d_rcv_ns", "receive", GREEN))
    for column, label, color in parts:
        values = run.values("hops", column) / 1e6
        plot_cdf(axes, np.maximum(values, 1e-3), label=f"{label}, median {np.median(values):.3g} ms", color=color)
    asked = run.values("hops", "asked_delay_ms")
    plot_cdf(axes, np.maximum(asked, 1e-3), label="one-way delay asked for", color=GREY, linestyle="--")
    axes.set(xscale="log", xlabel="part of a hop's delay (ms)", ylabel="share of hops", ylim=(0, 1.02))
    axes.legend(loc="upper left", fontsize=8)
    return canvas


OVERHEAD = (
    ("first_payload_bytes", "payload, first copy", GREEN),
    ("duplicate_payload_bytes", "payload, duplicate or relayed", ORANGE),
    ("framing_bytes", "framing", "#b08d00"),
    ("control_bytes", "overlay control", PURPLE),
    ("retransmitted_bytes", "retransmitted", RED),
    ("ack_bytes", "pure ACK", "#9fb7cf"),
    ("header_bytes", "IP and TCP headers", BLUE),
    ("other_bytes", "other (probes)", GREY),
)


@_figure("Bytes on the wire")
def overhead(run: Run) -> Canvas | None:
    """Every captured byte in exactly one class, counted once at its sender."""
    table = run.table("overhead")
    if table is None or table.empty:
        return None
    second = ((table["second_ns"] - run.zero_ns) // 1_000_000_000).astype(int)
    columns = [entry for entry in OVERHEAD if entry[0] in table]
    by_second = table.groupby(second)[[name for name, _, _ in columns]].sum() / 1000
    canvas, axes = plain_axes()
    axes.stackplot(
        by_second.index,
        *(by_second[name] for name, _, _ in columns),
        labels=[label for _, label, _ in columns],
        colors=[color for _, _, color in columns],
        step="post",
    )
    highest = float(by_second.sum(axis=1).max())
    axes.set(xlabel="time from the workload's zero (s)", ylabel="kB per second on the wire", ylim=(0, 1.45 * highest))
    axes.legend(loc="upper left", fontsize=7.5, ncols=2)
    return canvas


@_figure("Measured and configured round-trip times")
def rtt_error(run: Run) -> Canvas | None:
    """Echo requests over every directed pair before and after the workload, random pairs during it."""
    achieved = run.achieved()
    if achieved is None or achieved["rtt_ms"].isna().all():
        return None
    canvas, (left, right) = axes_grid(3.2, columns=2)
    for phase, color in (("before", BLUE), ("during", ORANGE), ("after", GREEN)):
        rows = achieved[(achieved["phase"] == phase) & achieved["rtt_ms"].notna()]
        if rows.empty:
            continue
        left.plot(rows["asked_rtt_ms"], rows["rtt_ms"], ".", markersize=1.5, color=color, rasterized=True)
        plot_cdf(right, np.maximum(rows["error_ms"], 1e-4), label=f"{phase}, n = {len(rows):,}", color=color)
    limit = float(achieved["asked_rtt_ms"].max()) * 1.05
    left.plot((0, limit), (0, limit), color=GREY, linewidth=0.7)
    left.set(xlabel="RTT asked for (ms)", ylabel="RTT measured (ms)")
    right.set(xscale="log", xlabel="|error| (ms)", ylabel="share of pairs", ylim=(0, 1.02))
    right.legend(loc="upper left", fontsize=8)
    return canvas


@_figure("Fidelity over time")
def fidelity(run: Run) -> Canvas | None:
    """Above: how late the data plane released packets, and the lengths of stalls of a processor (x) and of the data
    plane (+). Below: CPU. Shaded: the publishing window.
    """
    table = run.table("fidelity")
    if table is None or table.empty or table["lateness_p50_ns"].isna().all():
        return None
    seconds = (table["at_ns"] - run.zero_ns) / 1e9
    canvas, (upper, lower) = axes_grid(3.8, rows=2, sharex=True)
    for column, label, color in (("p50", "median", BLUE), ("p99", "99th percentile", ORANGE), ("max", "worst", RED)):
        values = table[f"lateness_{column}_ns"] / 1e6
        _by_second(upper, seconds, np.maximum(values, 1e-4), label=label, color=color)
    _mark_stalls(run, upper)
    upper.set(yscale="log", ylabel="lateness (ms)")
    upper.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize=7)  # stalls are everywhere below
    for column, label, color in (
        ("busy_ratio", "data plane's core", BLUE),
        ("cpu_busy_ratio", "machine", ORANGE),
        ("cpu_some_ratio", "tasks waiting (PSI)", RED),
    ):
        if column in table and table[column].notna().any():
            _by_second(lower, seconds, table[column], label=label, color=color)
    lower.set(xlabel="time from the workload's zero (s)", ylabel="share of a second", ylim=(0, 1.05))
    lower.legend(loc="upper right", ncols=3, fontsize=8)
    for axes in (upper, lower):
        axes.axvspan(0, run.duration_s, color="#f2f5f8", zorder=-1)
    return canvas


def _by_second(axes: Axes, seconds: pd.Series, values: pd.Series, **style: Any) -> None:  # noqa: ANN401
    """A marker per second with a value, joined by a line only where the next second has one, too."""
    known = values.notna()
    at, shown = seconds[known].to_numpy(), values[known].to_numpy()
    gaps = np.flatnonzero(np.diff(at) > _NEXT_S) + 1
    axes.plot(
        np.insert(at, gaps, np.nan), np.insert(shown, gaps, np.nan), marker=".", markersize=3, linewidth=1.1, **style
    )


def _mark_stalls(run: Run, axes: Axes) -> None:
    """A marker per stall, by its beginning and its length."""
    stalls = run.table("stalls")
    if stalls is None:
        return
    for source, label, marker in (("host", "stall of the host", "x"), ("plane", "gap of the data plane", "+")):
        rows = stalls[stalls["source"] == source]
        if rows.empty:
            continue
        length_ms = (rows["end_ns"] - rows["start_ns"]) / 1e6
        begin_s = (rows["start_ns"] - run.zero_ns) / 1e9
        axes.plot(begin_s, length_ms, marker, markersize=4, color=PURPLE, linestyle="none", label=label)
