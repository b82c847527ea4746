"""Makes the replay: one page that shows how chosen messages spread, over the map and over time, without a server.

The page has the data of its messages, and a script (``metrics.report.script``) that draws them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup
from msgspec import json

from metrics.foreign_text import printable
from metrics.report.coasts import NORTH, SOUTH, read_coasts
from metrics.report.figures.chapter import count, number
from metrics.report.page import sentence, template
from metrics.report.palette import palette_css
from metrics.report.run import Run
from metrics.report.script import read_script
from metrics.report.spread import MOST_COPIES, Spread

_DEGREES: Final = 2
"""The decimals of latitudes and longitudes in a page."""

Reasons = Mapping[int, Sequence[str]]
"""Why a message is in a replay, by the message."""


def choose_messages(run: Run) -> dict[int, list[str]]:
    """Choose the messages of an analysed run's replay, and say why each is one.

    Returns:
        The reasons by message: the messages of the slowest deliveries, one with a delivery that was not made, and one
        whose median delay is the median over all messages.
    """
    chosen: dict[int, list[str]] = {}
    slowest = run.standouts.slowest
    for place, delivery in enumerate(slowest, 1):
        rank = "the slowest delivery of the run" if place == 1 else f"slow delivery {place} of {len(slowest)}"
        words = f"{rank}: {number(delivery.latency_ms)} ms to {run.name_node(delivery.node)}"
        chosen.setdefault(delivery.message_id, []).append(words)
    others = (
        (run.standouts.undelivered, "a delivery that was not made"),
        (run.standouts.typical, "a typical message: its median delay is the median over all messages"),
    )
    for message_id, words in others:
        if message_id is not None:
            chosen.setdefault(message_id, []).append(words)
    return chosen


def render_replay(run: Run, spreads: Sequence[Spread], reasons: Reasons, report: str | None = None) -> str:
    """Return the page.

    Args:
        run: the analysed run.
        spreads: how the messages of the page spread.
        reasons: why each is in it; a message without an entry was asked for.
        report: the address of the run's report from the page; None = the page has no link to it.
    """
    return template("replay.html.j2").render(
        run=run,
        sentence=sentence(run),
        report=report,
        kept=_describe_choice(spreads, reasons),
        palette=palette_css(),
        document=embed(_document(run, spreads, reasons)),
        script=Markup(read_script()),
    )


def _describe_choice(spreads: Sequence[Spread], reasons: Reasons) -> str:
    """Return which messages the page has, and how to see others."""
    another = "trellis replay RUN --message ID --out FILE.html writes the page of any other message of the run."
    has = f"This page has {count(len(spreads), 'message')} of the run"
    chosen = f"{has}: the list below a message's name says why it is here." if reasons else f"{has}, as asked for."
    left_out = sum(each.left_out for each in spreads)
    left = f" {count(left_out, 'copy', 'copies')} beyond {MOST_COPIES:,} per message left out." if left_out else ""
    return f"{chosen}{left} {another}"


def embed(document: Any) -> Markup:  # noqa: ANN401 - any JSON value
    """Return a document as JSON inside a page, in which it begins no tag and no comment."""
    return Markup(json.encode(document).decode().replace("<", "\\u003c"))


def _document(run: Run, spreads: Sequence[Spread], reasons: Reasons) -> dict[str, Any]:
    """Return what the script draws. The order of the values of copies and deliveries is that of their fields."""
    hosts = run.hosts
    places = list(
        zip(hosts["site"], hosts["latitude"].round(_DEGREES), hosts["longitude"].round(_DEGREES), strict=True)
    )
    return {
        "nodes": [(printable(site), *at) for place in run.plan.placement for site, *at in [places[place.host]]],
        "land": read_coasts() if run.has_map else None,
        "south": SOUTH,
        "north": NORTH,
        "messages": [_describe(run, spread, reasons.get(spread.message_id, ())) for spread in spreads],
    }


def _describe(run: Run, spread: Spread, why: Sequence[str]) -> dict[str, Any]:
    name = f"message {spread.message_id}"
    return {
        "id": str(spread.message_id),  # more digits than numbers of scripts have
        "title": f"{why[0]} ({name})" if why else name,
        "about": _about(run, spread),
        "why": [f"{each}." for each in why],
        "publisher": spread.publisher,
        "origin": spread.origin,
        "faults": _faults(run, spread),
        "expected": spread.expected,
        "copies": spread.copies,
    }


def _faults(run: Run, spread: Spread) -> list[tuple[int, int]]:
    """Return when each fault of the run began and ended, in us after the message's origin."""
    table = run.table("faults")
    if table is None:
        return []
    during = table[table["phase"] == "during"]
    instants = zip(during["from_ns"].tolist(), during["to_ns"].tolist(), strict=True)
    zero_ns = run.zero_ns + spread.origin_ns
    return [((from_ns - zero_ns) // 1000, (to_ns - zero_ns) // 1000) for from_ns, to_ns in instants]


def _about(run: Run, spread: Spread) -> str:
    """Return a message in a sentence."""
    several = "topics" if len(spread.topics) != 1 else "topic"
    size = "" if spread.payload_bytes is None else f" of {count(spread.payload_bytes, 'byte')}"
    made = sum(each.delivered_us is not None for each in spread.expected)
    nameless = f", {spread.nameless:,} more whose ends are not known" if spread.nameless else ""
    return (
        f"Message {spread.message_id}{size} on {several} {', '.join(map(str, spread.topics)) or 'not known'}, "
        f"{spread.origin} by {run.name_node(spread.publisher)} {spread.origin_ns / 1e9:.3f} s after the workload's "
        f"zero. {made:,} of {count(len(spread.expected), 'expected delivery', 'expected deliveries')} made, "
        f"{count(len(spread.copies) + spread.left_out, 'copy', 'copies')} sent{nameless}."
    )
