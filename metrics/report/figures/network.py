"""Figures of the network: what the links carried, and how true the emulation was."""

from textwrap import shorten
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from metrics.foreign_text import printable
from metrics.report.canvas import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    MUSTARD,
    ORANGE,
    PALE,
    PURPLE,
    RED,
    SHADE,
    axes_grid,
    distinct_points,
    in_readers_font,
    legend_above,
    log_scale,
    plain_axes,
    plot_cdf,
    plot_seconds,
)
from metrics.report.figures.bands import mark_faults
from metrics.report.figures.chapter import NS_PER_S, Chapter, Drawing, count, number, percent, spread
from metrics.report.figures.router_graph import draw_router_graph
from metrics.report.run import Run

CHAPTER: Final = Chapter(
    "network", "Network", ("control_bytes_per_peer_per_s", "rtt_error_ms_p50", "rtt_error_ms_p99", "wire_error_ms_p99")
)

_MOST_SECONDS = 300

OVERHEAD: Final = (
    ("first_payload_bytes", "payload, first copy", GREEN),
    ("duplicate_payload_bytes", "payload, duplicate or relayed", ORANGE),
    ("framing_bytes", "framing", MUSTARD),
    ("control_bytes", "overlay control", PURPLE),
    ("opaque_bytes", "payload in no known frame", BROWN),
    ("retransmitted_bytes", "retransmitted", RED),
    ("ack_bytes", "pure ACK", PALE),
    ("header_bytes", "IP, TCP and UDP headers", BLUE),
    ("other_bytes", "other (probes)", GREY),
)


@CHAPTER.figure(
    "Where a hop's delay arises",
    "hops",
    meaning="""The wire should take what was asked for, or half of the measured round trip where nothing was: the blue
    curve lies on the dashed one. The other two curves are the time in the hosts; if they come near the blue one, the
    machine is too slow for the run.""",
)
def hop_delay(run: Run) -> Drawing | None:
    """Send buffer: from the peer's write to the first byte on the network.

    Wire: to the last byte in order at the receiver's interface. Receive: to the peer's read.
    """
    totals = run.totals.hops
    if not len(totals.wire_ms):
        return None
    canvas, axes = plain_axes()
    parts = (("send buffer", totals.send_ms, ORANGE), ("wire", totals.wire_ms, BLUE))
    seen = []
    for name, values, color in (*parts, ("receive", totals.receive_ms, GREEN)):
        label = name
        if len(values):
            median, high, _ = spread(values)
            label += f", median {number(median)} ms"
            seen.append(f"{name} {number(median)} ms (99 % within {number(high)} ms)")
        plot_cdf(axes, values, least=1e-3, label=label, color=color)
    asked = totals.asked_ms
    reference = "one-way delay asked for" if run.is_asked_for else "half of the measured round trip"
    plot_cdf(axes, asked, least=1e-3, label=reference, color=GREY, linestyle="--")
    log_scale(axes, "x")
    axes.set(xlabel="part of a hop's delay (ms)", ylabel="share of hops", ylim=(0, 1.02))
    legend_above(axes)
    wanted = f" {reference.capitalize()}: {number(spread(asked)[0])} ms." if len(asked) else ""
    return Drawing(canvas, f"Median parts of a hop's delay: {', '.join(seen)}.{wanted}")


@CHAPTER.figure(
    "Bytes on the wire",
    "overhead",
    meaning="""What the bandwidth is spent on. Only the green part is new to a subscriber; all else is the price of the
    overlay and of TCP.""",
)
def overhead(run: Run) -> Drawing | None:
    """Every captured byte in exactly one class, counted once at its sender. Of more than 300 seconds, means over
    several of them are shown.
    """
    table = run.grouped("overhead", ["second_ns"], *(name for name, _, _ in OVERHEAD), by="sum")
    if table is None or table.empty:
        return None
    second = ((table["second_ns"] - run.zero_ns) // NS_PER_S).astype(int)
    classes = [entry for entry in OVERHEAD if table[entry[0]].notna().any()]
    names = [name for name, _, _ in classes]
    by_second = table.groupby(second)[names].sum() / 1000
    by_second = by_second.reindex(range(by_second.index.min(), by_second.index.max() + 1), fill_value=0.0)
    span = -(-len(by_second) // _MOST_SECONDS)
    shown = by_second.groupby(by_second.index // span * span).mean()
    shown.loc[shown.index[-1] + span] = shown.iloc[-1]  # where the last one ends
    canvas, axes = plain_axes(height=3.5)
    axes.stackplot(
        shown.index,
        *(shown[name] for name in names),
        labels=[label for _, label, _ in classes],
        colors=[color for _, _, color in classes],
        step="post",
    )
    axes.set(xlabel="time from the workload's zero (s)", ylabel="kB per second on the wire", ylim=(0, None))
    legend_above(axes)
    totals, all_kb = by_second.sum(), float(by_second.sum(axis=1).sum())
    shares = [f"{label} {percent(totals[name] / all_kb)}" for name, label, _ in classes if totals[name]]
    busiest = by_second.sum(axis=1)
    seen = (
        f"{number(all_kb)} kB in all, at most {number(float(busiest.max()))} kB in one second (second "
        f"{busiest.idxmax()}): {', '.join(shares)}."
    )
    return Drawing(canvas, seen + mark_faults(run, axes))


@CHAPTER.figure(
    "Links of the underlay",
    "underlay_links",
    meaning="""Overlay links that share a link of the underlay send the same message over it several times. A stress of
    1 is that of a multicast tree in the network itself. The links with the most copies are the bottlenecks.""",
)
def underlay_links(run: Run) -> Drawing | None:
    """The stress of a link, in one direction: the copies of a message that crossed it, on average over the messages
    that did. Shown are the links that most copies crossed.
    """
    table = run.table("underlay_links")
    if table is None or not table["messages"].any():
        return None
    used = table[table["messages"] > 0]
    used = used.assign(stress=used["copies"] / used["messages"], name=used.apply(_name_link, axis=1))
    top = used.nlargest(_MOST_LINKS, "copies")[::-1]
    places = np.arange(len(top))
    canvas, axes = plain_axes(height=1.2 + 0.24 * len(top))
    axes.barh(places, top["stress"], color=BLUE, label="mean")
    axes.plot(
        top["copies_max"], places, "|", color=ORANGE, markersize=9, markeredgewidth=2, label="most of one message"
    )
    with in_readers_font():
        axes.set_yticks(places, top["name"])
    axes.set(xlabel="copies of a message", xlim=(0, None))
    legend_above(axes)
    worst = used.loc[used["copies_max"].idxmax()]
    seen = (
        f"{len(used):,} of {count(len(table), 'link')} carried messages, the median link each of its messages "
        f"{number(float(used['stress'].median()))} times. One message crossed the link from {worst['name']} "
        f"{worst['copies_max']:,} times, the most of all."
    )
    if table["wire_bytes"].sum() > 0:
        busiest = table.loc[table["wire_bytes"].idxmax()]
        share = percent(busiest["wire_bytes"] / table["wire_bytes"].sum())
        seen += f" The link from {_name_link(busiest)} carried {share} of the bytes that crossed links."
    return Drawing(canvas, seen)


@CHAPTER.figure(
    "The graph of the underlay",
    "underlay_links",
    meaning="""Where in the network the same message crosses a link several times. Wide lines in the middle are links
    that many overlay links share; at the edge they are those of single routers with many nodes.""",
)
def underlay_graph(run: Run) -> Drawing | None:
    """Routers and the links between them. A line is as wide as the stress of the link's direction that has more. The
    layout is by the number of links between routers, not by places. Of more than 500 routers there is no figure.
    """
    table = run.table("underlay_links")
    return None if table is None or not table["messages"].any() else draw_router_graph(table)


_MOST_LINKS: Final = 12


def _name_link(link: pd.Series) -> str:
    return " to ".join(shorten(printable(link[name]), 22, placeholder="…") for name in ("src_name", "dst_name"))


@CHAPTER.figure(
    "Measured and configured round-trip times",
    "achieved",
    meaning="""Whether the emulated network is the one that was asked for. On the left, points should lie on the
    diagonal. On the right, errors far below the delays themselves mean that results hold for the real network's
    delays.""",
)
def rtt_error(run: Run) -> Drawing | None:
    """Echo requests over every directed pair before and after the workload, random pairs during it."""
    achieved = run.achieved()
    if achieved is None or achieved["rtt_ms"].isna().all():
        return None
    canvas, (left, right) = axes_grid(3.2, columns=2)
    seen = []
    for phase, color in (("before", BLUE), ("during", ORANGE), ("after", GREEN)):
        rows = achieved[(achieved["phase"] == phase) & achieved["rtt_ms"].notna()]
        if rows.empty:
            continue
        points = rows[["asked_rtt_ms", "rtt_ms"]].to_numpy(dtype=float)
        points = points[distinct_points(*points.T)]
        left.plot(points[:, 0], points[:, 1], ".", markersize=2, color=color)
        plot_cdf(right, rows["error_ms"], least=1e-4, label=f"{phase}, n = {len(rows):,}", color=color)
        median, high, _ = spread(rows["error_ms"])
        seen.append(
            f"{phase} the workload {count(len(rows), 'probe')}, half within {number(median)} ms of what was asked for, "
            f"99 % within {number(high)} ms"
        )
    limit = float(achieved["asked_rtt_ms"].max()) * 1.05
    left.plot((0, limit), (0, limit), color=GREY, linewidth=0.7)
    left.set(xlabel="RTT asked for (ms)", ylabel="RTT measured (ms)")
    log_scale(right, "x", decades=4)
    right.set(xlabel="|error| (ms)", ylabel="share of pairs", ylim=(0, 1.02))
    legend_above(right, columns=1)
    text = "; ".join(seen)
    return Drawing(canvas, f"{text[0].upper()}{text[1:]}.")


@CHAPTER.figure(
    "Fidelity over time",
    "fidelity",
    "stalls",
    meaning="""Whether the machine kept up. Packets should leave far less than a millisecond late, and no share should
    stay near 1. A peak while a stall is marked is the host's, not the overlay's.""",
)
def fidelity(run: Run) -> Drawing | None:
    """Above: how late the data plane released packets, and the lengths of stalls of a processor (x) and of the data
    plane (+). Below: CPU. Shaded: the publishing window.
    """
    table = run.table("fidelity")
    if table is None or table.empty or table["lateness_p50_ns"].isna().all():
        return None
    seconds = (table["at_ns"] - run.zero_ns) / 1e9
    canvas, (upper, lower) = axes_grid(4.6, rows=2, sharex=True)
    for column, label, color in (("p50", "median", BLUE), ("p99", "99th percentile", ORANGE), ("max", "worst", RED)):
        values = table[f"lateness_{column}_ns"] / 1e6
        plot_seconds(upper, seconds, np.maximum(values, 1e-3), label=label, color=color)
    stalls = _mark_stalls(run, upper)
    log_scale(upper, "y")
    upper.set(ylabel="lateness (ms)")
    legend_above(upper, columns=3)
    for column, label, color in (
        ("busy_ratio", "data plane's core", BLUE),
        ("cpu_busy_ratio", "machine", ORANGE),
        ("cpu_some_ratio", "tasks waiting (PSI)", RED),
    ):
        if column in table and table[column].notna().any():
            plot_seconds(lower, seconds, table[column], label=label, color=color)
    lower.set(xlabel="time from the workload's zero (s)", ylabel="share of a second", ylim=(0, 1.05))
    legend_above(lower, columns=3)
    for axes in (upper, lower):
        axes.axvspan(0, run.duration_s, color=SHADE, zorder=-1)
    return Drawing(canvas, f"{_lateness_seen(table, seconds)}{stalls}{mark_faults(run, upper, lower)}")


@CHAPTER.figure(
    "Resources of the peers",
    "samples",
    meaning="""What only the processes know. A peer near the share of a whole processor is too slow for its frames.
    Memory that grows all the time is a leak. Bytes that wait at a peer are delay that neither the network nor the
    protocol causes.""",
)
def peer_resources(run: Run) -> Drawing | None:
    """By Prometheus, of each interval between two scrapes: the median of the peers and the highest of them. Processor
    time is real time, as a share of one processor. Pages that peers share count at each of them. Queues are of bytes
    that the peers have not yet given to the kernel.
    """
    found = [(label, unit, _by_scrape(run, metric, scale)) for metric, label, unit, scale in _RESOURCES]
    shown = [(label, unit, values) for label, unit, values in found if values is not None]
    if not shown:
        return None
    canvas, panels = axes_grid(1.2 + 1.5 * len(shown), rows=len(shown), sharex=True)
    seen = []
    for axes, (label, unit, values) in zip(panels, shown, strict=True):
        for column, name, color in (("median", "median of the peers", BLUE), ("max", "highest", ORANGE)):
            axes.plot(values.index, values[column], label=name, color=color, marker=".", markersize=3)
        axes.set(ylabel=f"{label} ({unit})", ylim=(0, None))
        seen.append(f"{label} at most {number(float(values['max'].max()))} {unit}")
    legend_above(panels[0])
    panels[-1].set(xlabel="time from the workload's zero (s)")
    for axes in panels:
        axes.axvspan(0, run.duration_s, color=SHADE, zorder=-1)
    text = f"Of one peer, {'; '.join(seen)}."
    return Drawing(canvas, text + mark_faults(run, *panels))


_RESOURCES: Final = (
    ("process_cpu_seconds_total", "processor", "%", 100.0),
    ("process_resident_memory_bytes", "memory", "MiB", 2.0**-20),
    ("trellis_send_queue_bytes", "queue", "kB", 1e-3),
)


def _by_scrape(run: Run, metric: str, scale: float) -> pd.DataFrame | None:
    """Return the median and the highest value of the peers in each scrape interval, by seconds from zero; None = none.

    A counter's values are its rates per real second. If a counter was reset, it has no value.
    """
    samples = run.samples(metric)
    if samples is None or samples.empty:
        return None
    values, interval_s = samples["value"], run.scrape_interval_s
    if metric.endswith("_total"):
        gained = samples.groupby("node")[["ts_ns", "value"]].diff()
        values = (gained["value"] / gained["ts_ns"] * NS_PER_S / run.dilation).where(gained["value"] >= 0)
    place = (samples["ts_ns"] - run.zero_ns) / NS_PER_S // interval_s * interval_s
    found = (values * scale).groupby(place).agg(["median", "max"]).dropna()
    return None if found.empty else found


def _lateness_seen(table: pd.DataFrame, seconds: pd.Series) -> str:
    worst = table["lateness_max_ns"].idxmax()
    usual_ms, worst_ms = table["lateness_p99_ns"].median() / 1e6, table["lateness_max_ns"].max() / 1e6
    text = (
        f"In the median second, 99 % of the packets left within {number(usual_ms)} ms of their due time; the worst "
        f"packet was {number(worst_ms)} ms late (second {seconds[worst]:.0f})."
    )
    if "busy_ratio" in table and table["busy_ratio"].notna().any():
        text += f" The data plane used up to {percent(table['busy_ratio'].max())} of its core."
    return text


def _mark_stalls(run: Run, axes: Axes) -> str:
    """Draw a marker per stall, by its beginning and its length; return a sentence about them."""
    stalls = run.table("stalls")
    if stalls is None:
        return ""
    seen = ""
    for source, one, many, marker in (
        ("host", "stall of the host", "stalls of the host", "x"),
        ("plane", "gap of the data plane", "gaps of the data plane", "+"),
    ):
        rows = stalls[stalls["source"] == source]
        if rows.empty:
            continue
        length_ms = ((rows["end_ns"] - rows["start_ns"]) / 1e6).to_numpy()
        begin_s = ((rows["start_ns"] - run.zero_ns) / 1e9).to_numpy()
        kept = distinct_points(begin_s, np.log10(length_ms))
        axes.plot(begin_s[kept], length_ms[kept], marker, markersize=4, color=PURPLE, linestyle="none", label=one)
        seen += f" {count(len(rows), one, many)}, the longest {number(length_ms.max())} ms."
    return seen
