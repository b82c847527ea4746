"""Finds what a reader of a report should look at first: what stands out in the run, and what to try next."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from metrics.degenerate import find_degeneracies
from metrics.report.figures.chapter import count, number
from metrics.report.run import Run
from metrics.report.slow import SlowRow
from metrics.report.values import join_words
from metrics.reported import reports_nothing
from metrics.rundir import VALID, RunDir
from peer.protocols.registry import PROTOCOLS

_NAMED: Final = 3
"""The most nodes or topics that a sentence names."""

_WORKLOAD: Final = "workload"


class Finding(Struct, frozen=True):
    """A sentence on a run; ``href``: where the page or the replay shows it, None = nowhere."""

    text: str
    href: str | None = None


class Advice(Struct, frozen=True):
    """A command to try next, and what it is good for."""

    reason: str
    command: str


def find_striking(run: Run, slow: Sequence[SlowRow]) -> list[Finding]:
    """Return what stands out in a run, the most serious first.

    Args:
        run: the analysed run.
        slow: its slowest deliveries, slowest first.
    """
    stalls = [*_stalls(run)]
    harmless = run.summary.verdict == VALID
    return [
        *_undelivered(run),
        *_repeated(run),
        *_partitioned(run),
        *([] if harmless else stalls),
        *_slowest(slow),
        *_waiting(run),
        *_loaded(run),
        *(Finding(f"{_begin(text)}.") for text in _degeneracies(run)),
        *(stalls if harmless else []),
    ]


def find_quiet(run: Run) -> str:
    """Return what was looked for and not found, in a sentence; empty if there is nothing to say."""
    parts = []
    totals = run.totals.messages.deliveries
    if totals.known and totals.delivered == totals.known:
        parts.append("no expected delivery is missing")
    topics = run.last("overlay_topics")
    if topics is not None and len(topics) and not run.hides("components") and topics["components"].max() <= 1:
        parts.append("no topic is partitioned")
    if run.manifest.counters.get("processors_watched") and not any(_stalls(run)):
        parts.append("no processor stood still during the workload")
    text = join_words(parts)
    return f"{_begin(text)}." if text else ""


def advise(run: Run, baseline: RunDir | None = None) -> list[Advice]:
    """Return commands to try next; with a baseline, first how to find out which differences are more than noise.

    ``RUN`` stands for the run's directory, ``FILE`` for its experiment file. The copy of the file in the directory will
    not do: paths in the file are relative to the folder of the file.
    """
    again = "trellis run FILE"
    found: list[Advice] = []
    if run.summary.verdict != VALID and len(run.stalls.host):
        why = "Up to two more attempts if only stalls of the host spoil a run"
        found.append(Advice(why, f"{again} --retry-host-stalls 2"))
    other = None if baseline is None else baseline.summary.protocol
    own = run.experiment["protocol"]
    if other is not None and other != own:
        both = "; ".join(f"{again} --repeat 5 --set protocol={name}" for name in (own, other))
        why = f"Which of the differences between {own} and {other} are more than noise: five seeds of each, in pairs"
        found.append(Advice(why, f"{both}; trellis compare runs/{run.plan.name}/*"))
    if run.experiment.get("peer", {}).get("command") is None:  # programs have their own protocol
        others = ", ".join(name for name in PROTOCOLS if name != own)
        why = f"Another protocol with the same network and workload ({others}), with the options of this run"
        found.append(Advice(why, f"{again} --set protocol=NAME"))
    found.append(Advice("How much the numbers vary with the seed", f"{again} --repeat 5"))
    found.append(Advice("Which differences between such runs are more than noise", "trellis compare RUN OTHER..."))
    if not reports_nothing(run.experiment):
        found.append(Advice("How any other message spread", "trellis replay RUN --message ID --out PAGE.html"))
    return found


def _undelivered(run: Run) -> Iterator[Finding]:
    totals = run.totals.messages
    missing = totals.deliveries.known - totals.deliveries.delivered
    if not missing:
        return
    by_topic = {topic: counts.known - counts.delivered for topic, counts in totals.by_topic.items()}
    most = max(by_topic, key=lambda topic: (by_topic[topic], -topic))
    total = count(totals.deliveries.known, "expected delivery", "expected deliveries")
    were = "was" if missing == 1 else "were"
    yield Finding(
        f"{missing:,} of {total} {were} not made. Topic {most} lacks the most: {by_topic[most]:,}.", "#results"
    )


def _repeated(run: Run) -> Iterator[Finding]:
    if repeated := run.totals.messages.repeated:
        again = count(repeated, "time", "times")
        yield Finding(f"Applications got a message again {again}, after the first delivery to their node.", "#results")


def _partitioned(run: Run) -> Iterator[Finding]:
    topics = run.last("overlay_topics")
    if topics is None or run.hides("components"):
        return
    broken = topics[topics["components"] > 1].sort_values(["components", "topic"], ascending=[False, True])
    if broken.empty:
        return
    worst = [f"{row.topic} ({row.components:,} components)" for row in broken.head(_NAMED).itertuples()]
    several = "topics are" if len(topics) != 1 else "topic is"
    which = f"{'above all ' if len(broken) > _NAMED else ''}{', '.join(worst)}"
    yield Finding(
        f"{len(broken):,} of {len(topics):,} {several} partitioned at the workload's end: {which}.", "#overlay"
    )


def _stalls(run: Run) -> Iterator[Finding]:
    stalls = run.table("stalls")
    if stalls is None:
        return
    during = stalls[stalls["phase"] == _WORKLOAD]
    for source, what in (("host", "A processor"), ("plane", "The data plane")):
        lengths_ms = (during["end_ns"] - during["start_ns"])[during["source"] == source] / 1e6
        if len(lengths_ms):
            times = "once" if len(lengths_ms) == 1 else f"{len(lengths_ms):,} times"
            most_ms = number(float(lengths_ms.max()))
            allowed = " No check failed for it." if run.summary.verdict == VALID else ""
            yield Finding(f"{what} stood still {times} during the workload, for {most_ms} ms at most.{allowed}")


def _slowest(slow: Sequence[SlowRow]) -> Iterator[Finding]:
    if not slow:
        return
    worst = slow[0]
    between = worst.path[1:-1]
    way = "" if not worst.path else f", via {', '.join(between)}" if between else ", straight"
    direct = "" if worst.direct_delay_ms is None else f". The direct path takes {number(worst.direct_delay_ms)} ms"
    yield Finding(
        f"The slowest delivery took {number(worst.latency_ms)} ms: from {worst.publisher} to {worst.subscriber}"
        f"{way}{direct}.",
        worst.replay or "#slowest",
    )


def _waiting(run: Run) -> Iterator[Finding]:
    means_ms = {node: delays.mean_ms for node, delays in run.standouts.by_node.items()}
    if len(means_ms) <= _NAMED:
        return
    worst = sorted(means_ms, key=lambda node: (-means_ms[node], node))[:_NAMED]
    named = [f"{run.name_node(node)} {number(means_ms[node])} ms" for node in worst]
    yield Finding(
        f"These nodes wait longest for a message, on average: {', '.join(named)}; "
        f"the median node waits {number(float(np.median(list(means_ms.values()))))} ms."
    )


def _loaded(run: Run) -> Iterator[Finding]:
    totals = run.totals.messages
    sent = {node: rows.rows for node, rows in totals.copies_by_sender.items()}
    received = sum(counts.copies for counts in totals.copies_by_node.values())
    if not sent or sum(sent.values()) < received:  # programs may not report who sent a copy
        return
    load = _of_honest(run, sent)
    busiest = max(load, key=lambda node: (load[node], -node))
    if not load[busiest]:  # adversaries sent all copies
        return
    middle = float(np.median(list(load.values())))
    times = f", {number(load[busiest] / middle, 2)} times as many as the median node" if middle else ""
    yield Finding(f"{_begin(run.name_node(busiest))} sends the most copies of messages: {load[busiest]:,}{times}.")


def _begin(text: str) -> str:
    """Return a text whose first letter is a capital."""
    return text[0].upper() + text[1:]


def _of_honest(run: Run, counts: Mapping[int, int]) -> dict[int, int]:
    return {node: counts.get(node, 0) for node in run.nodes if node not in run.adversaries}


def _degeneracies(run: Run) -> Iterator[str]:
    degree = run.summary.headline.get("degree_mean")
    return find_degeneracies(run.experiment, None if degree is None else float(degree))
