"""Figures of the results: what the overlay delivered, how fast, and with how many copies."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from metrics.report.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    axes_grid,
    legend_above,
    plain_axes,
    plot_cdf,
    plot_seconds,
    whole_numbers,
)
from metrics.report.figures.bands import mark_faults
from metrics.report.figures.chapter import Chapter, Drawing, count, number, percent, spread
from metrics.report.run import Run

_BAR: Final = 0.27
"""The width of a bar; each fault has three."""

CHAPTER: Final = Chapter(
    "results",
    "Results",
    (
        *(
            "delivery_ratio",
            "deliveries_unknown",
            "propagation_delay_ms_mean",
            "propagation_delay_ms_p50",
            "propagation_delay_ms_p99",
            "least_delay_ms_p50",
        ),
        *("duplicates_per_delivery", "relay_ratio", "traffic_overhead_ratio", "traffic_overhead_above_20_ratio"),
        *("members_reached_ratio", "false_positive_ratio", "disclosure_ratio"),
    ),
)


def _shares(counts: Mapping[int, NamedTuple], part: str, whole: str) -> "pd.Series[float]":
    """Return the share of one count in another that is not 0, by what they are counted by."""
    pairs = ((key, getattr(each, part), getattr(each, whole)) for key, each in counts.items())
    return pd.Series({key: some / all_ for key, some, all_ in pairs if all_})


@CHAPTER.figure(
    "Propagation delay",
    "deliveries",
    meaning="""How long subscribers wait for a message. The further left the curve, the faster the overlay; the gap to
    the dashed curve is the price of going through other nodes instead of straight to each subscriber. A curve that
    ends below 1 has lost messages. No delivery can be left of the dotted curve. If a program's deliveries are far to
    the right of it, the program is slow, or reports them late.""",
)
def delay_cdf(run: Run) -> Drawing | None:
    """From publication to first delivery at each subscriber; an undelivered pair keeps the curve below 1.

    Dashed: the one-way delay of the direct path of the same pairs. Dotted: the least delay that the captured packets
    allow.
    """
    totals = run.totals.messages
    expected, latency, direct = totals.deliveries.known, totals.latency_ms, totals.direct_delay_ms
    least = totals.least_latency_ms
    if not expected:
        return None
    canvas, axes = plain_axes()
    plot_cdf(axes, latency, of=expected, label="overlay", color=BLUE)
    plot_cdf(axes, direct, label="direct path", color=GREY, linestyle="--")
    if len(least):
        plot_cdf(axes, least, of=expected, label="least, by the packets", color=ORANGE, linestyle=":")
    axes.set(xlabel="delay from publication (ms)", ylabel="share of expected deliveries", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    legend_above(axes)
    seen = f"{len(latency):,} of {count(expected, 'expected delivery', 'expected deliveries')} made"
    if len(latency):
        median, high, most = spread(latency)
        seen += (
            f": half of them within {number(median)} ms, 99 % within {number(high)} ms, all within {number(most)} ms"
        )
    if len(direct):
        seen += f". The direct paths take {number(spread(direct)[0])} ms (median)"
    if len(least):
        seen += f". The packets allow {number(spread(least)[0])} ms (median)"
    return Drawing(canvas, f"{seen}.")


@CHAPTER.figure(
    "Delivery ratio",
    "deliveries",
    meaning="""Whether messages arrive at all. A dip on the left is a time when something broke, such as nodes that
    left; a low step on the right is a topic whose subscribers are badly connected.""",
)
def delivery_ratio(run: Run) -> Drawing | None:
    """Share of expected deliveries that were made, by second of publication and by topic. A gap in the line is a
    second in which no message with an expected delivery was published.
    """
    totals = run.totals.messages
    delivered, known, unknown = totals.deliveries.delivered, totals.deliveries.known, totals.deliveries.unknown
    if not known:
        return None
    by_second = _shares(totals.by_second, "delivered", "known")
    by_topic = _shares(totals.by_topic, "delivered", "known").sort_values()
    canvas, (left, right) = axes_grid(2.8, columns=2, width_ratios=(3, 2), sharey=True)
    plot_seconds(left, by_second.index, by_second, color=BLUE)
    left.set(xlabel="second of publication", ylabel="delivery ratio", ylim=(0, 1.03))
    right.stairs(by_topic, np.arange(len(by_topic) + 1), fill=True, color=GREEN)
    right.set(xlabel=f"{count(len(by_topic), 'topic')}, lowest first")
    whole_numbers(left.xaxis)
    whole_numbers(right.xaxis, most=5)
    seen = f"{percent(delivered / known)} of the expected deliveries were made"
    if unknown:
        seen += f", without {count(unknown, 'delivery', 'deliveries')} of which the traces do not say it"
    seen += f".{mark_faults(run, left)} "
    if delivered == known:
        return Drawing(canvas, f"{seen}No second and no topic is below 100 %.")
    below, lossy = int((by_second < 1).sum()), int((by_topic < 1).sum())
    dip = f" (down to {percent(by_second.min())} in second {by_second.idxmin():g})" if below else ""
    return Drawing(
        canvas,
        f"{seen}Below 100 %: {below:,} of {count(len(by_second), 'second')}{dip} and {lossy:,} of "
        f"{count(len(by_topic), 'topic')} (down to {percent(by_topic.iloc[0])} for topic {by_topic.index[0]}).",
    )


@CHAPTER.figure(
    "Duplicates",
    "deliveries",
    meaning="""Copies that a subscriber has already received cost bandwidth, but they protect against loss: with none,
    every lost copy is a lost delivery. Further left is cheaper.""",
)
def duplicates(run: Run) -> Drawing | None:
    """Copies of a message that a subscriber received after the first."""
    by_copies = run.totals.messages.by_copies
    if not by_copies:
        return None
    canvas, axes = plain_axes(height=2.6)
    values, counts = np.array(list(by_copies)) - 1, np.array([count.rows for count in by_copies.values()])
    axes.bar(values, counts / counts.sum(), color=ORANGE, width=0.85)
    axes.set(xlabel="duplicate copies received with a delivery", ylabel="share of deliveries")
    whole_numbers(axes.xaxis)
    mean = float(values @ counts / counts.sum())
    seen = (
        f"A delivery comes with {number(mean)} duplicates on average and at most {values[-1]:,}; "
        f"most often with {values[counts.argmax()]:,} ({percent(counts.max() / counts.sum())} of the deliveries)."
    )
    return Drawing(canvas, seen)


@CHAPTER.figure(
    "Traffic overhead",
    "hops",
    "messages",
    meaning="""Work that nodes do for topics that they do not want. Low is good; a curve on the right that rises late
    means that some nodes carry much of others' traffic.""",
)
def traffic_overhead(run: Run) -> Drawing | None:
    """Share of the copies that arrive at nodes that subscribe to none of the message's topics: by second of
    publication, and of each node that received a copy.
    """
    totals = run.totals.messages
    if not totals.copies_by_node or run.hides("traffic_overhead_ratio"):
        return None
    by_second = _shares(totals.copies_by_second, "at_relay", "copies")
    by_node = _shares(totals.copies_by_node, "at_relay", "copies")
    copies, _, _, at_relay = map(sum, zip(*totals.copies_by_node.values(), strict=True))
    canvas, (left, right) = axes_grid(2.8, columns=2, width_ratios=(3, 2))
    plot_seconds(left, by_second.index, by_second, color=ORANGE)
    left.set(xlabel="second of publication", ylabel="share of copies at relays", ylim=(0, 1.03))
    whole_numbers(left.xaxis)
    plot_cdf(right, by_node, color=ORANGE)
    right.set(xlabel="share of a node's copies", ylabel="share of nodes", xlim=(0, 1.02), ylim=(0, 1.03))
    right.set_xticks([0, 0.5, 1])
    median, _, most = spread(by_node)
    seen = (
        f"{percent(at_relay / copies)} of {count(copies, 'received copy', 'received copies')} are at "
        f"nodes that do not want them; this share is {percent(median)} at the median node and at most {percent(most)}."
    )
    return Drawing(canvas, seen + mark_faults(run, left))


@CHAPTER.figure(
    "Before, during and after faults",
    "faults",
    meaning="""What the faults of the experiment cost, and whether the overlay recovers. Green bars should be like blue
    ones; orange ones show what the fault did while it lasted.""",
)
def faults(run: Run) -> Drawing | None:
    """Delivery ratio and 99th percentile of the delay, by the phase of each fault in which messages were published."""
    table = run.table("faults")
    if table is None or table.empty:
        return None
    canvas, panels = axes_grid(2.8, columns=2)
    for axes, column in zip(panels, ("delivery_ratio", "latency_ms_p99"), strict=True):
        for place, (phase, color) in enumerate((("before", BLUE), ("during", ORANGE), ("after", GREEN))):
            rows = table[table["phase"] == phase]
            axes.bar(rows["fault"] + (place - 1) * _BAR, rows[column], width=_BAR, color=color, label=phase)
        axes.set(xlabel="number of the fault", ylim=(0, None))
        whole_numbers(axes.xaxis)
    panels[0].set_ylabel("delivery ratio")
    panels[1].set_ylabel("99 % of the delays (ms)")
    legend_above(panels[0], columns=3)
    return Drawing(canvas, " ".join(_fault_seen(rows) for _, rows in table.groupby("fault")))


def _fault_seen(rows: pd.DataFrame) -> str:
    """Return what a fault did, as a sentence."""
    ratios = {row.phase: percent(row.delivery_ratio) for row in rows.itertuples() if pd.notna(row.delivery_ratio)}
    seen = ", ".join(f"{ratio} {phase} it" for phase, ratio in ratios.items())
    recovered = rows["recovered_ms"].dropna()
    text = f"Fault {rows['fault'].iloc[0]}: {seen or 'no message'} delivered"
    return f"{text}, recovered after {number(recovered.iloc[0] / 1000)} s." if len(recovered) else f"{text}."


@CHAPTER.figure(
    "Learning",
    "epochs",
    meaning="""Nodes begin with random neighbours and replace them. If they learn well, the delay falls with the epochs
    and the delivery ratio does not.""",
)
def learning(run: Run) -> Drawing | None:
    """Mean propagation delay, delivery ratio and the score of the neighbours that nodes keep, by epoch."""
    epochs = run.table("epochs")
    if epochs is None or epochs.empty:
        return None
    canvas, panels = axes_grid(4.6, rows=3, sharex=True)
    curves = (("latency_ms_mean", "mean delay (ms)", BLUE), ("delivery_ratio", "delivery ratio", GREEN))
    for axes, (column, label, color) in zip(panels, (*curves, ("score_mean", "mean score", ORANGE)), strict=True):
        axes.plot(epochs["epoch"], epochs[column], color=color, marker=".")
        axes.margins(y=0.1)
        axes.set_ylabel(label)
    panels[0].set_ylim(bottom=0)
    panels[2].set_xlabel("epoch")
    whole_numbers(panels[2].xaxis)
    known = epochs[epochs["latency_ms_mean"].notna()]
    if known.empty:
        return Drawing(canvas, f"{count(len(epochs), 'epoch')} without deliveries.")
    first, last = known.iloc[0], known.iloc[-1]
    seen = (
        f"From epoch {first['epoch']:g} to {last['epoch']:g} the mean delay goes from "
        f"{number(first['latency_ms_mean'])} to {number(last['latency_ms_mean'])} ms, the delivery ratio from "
        f"{percent(first['delivery_ratio'])} to {percent(last['delivery_ratio'])}."
    )
    return Drawing(canvas, seen)
