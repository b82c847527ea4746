"""Churn: the sessions of each node, drawn or read before the run."""

from pathlib import Path
from random import Random
from typing import NamedTuple

from harness.errors import ExperimentError
from harness.experiment.data import require_data
from harness.experiment.sections.workload import ChurnSpec
from harness.workload.files import Recorded, join_sessions, read_sessions
from peer.core.randomness import NETWORK, substream


class Span(NamedTuple):
    """The interval of churn: from the peers' start to their stop (ns from the workload's zero)."""

    start_ns: int
    end_ns: int


class Session(NamedTuple):
    """An interval in which a node is up (ns from the workload's zero).

    A session that begins with the span began before it, and one that ends with the span lasts longer. ``crashes``: it
    ends with a crash, ``silent``: with one of the host.
    """

    from_ns: int
    to_ns: int
    crashes: bool
    silent: bool = False


Sessions = tuple[tuple[Session, ...], ...]
"""Every node's sessions, index = node, in order of time and without overlap."""


def draw_sessions(spec: ChurnSpec, nodes: int, span: Span, seed: int, folder: Path) -> Sessions:
    """Return every node's sessions within the span, for every kind of churn except scripts.

    Args:
        spec: the section ``[churn]``.
        nodes: number of nodes.
        span: the interval of churn.
        seed: the seed of the run.
        folder: the folder of the experiment file; ``spec.path`` is relative to it.

    Raises:
        ExperimentError: the file is missing or invalid, or a key does not fit the span.
    """
    drawn = _draw_by_kind(spec, nodes, span, seed, folder)
    for node, session in _draw_flash_crowd(spec, nodes, span, seed).items():
        drawn[node] = [session]
    return tuple(tuple(_silence(spec, own, seed, node)) for node, own in enumerate(drawn))


def _draw_by_kind(spec: ChurnSpec, nodes: int, span: Span, seed: int, folder: Path) -> list[list[Session]]:
    if spec.kind == "exponential":
        return [_draw_exponential(spec, span, substream(seed, node, "churn")) for node in range(nodes)]
    if spec.kind == "sessions":
        path = require_data(spec, "churn", folder)
        recorded = read_sessions(path)
        if spec.end_s is None:
            if len(recorded) < nodes:
                raise ExperimentError(str(path), f"expected sessions of {nodes} nodes, got {len(recorded)}")
            played = recorded[:nodes]
        else:
            _check_window(spec, spec.end_s, span)
            played = _play_window(Window(spec.origin_s, spec.end_s), recorded, nodes, seed)
            if not played:
                window = f"{_shown(spec.origin_s)} and {_shown(spec.end_s)} s"
                raise ExperimentError(str(path), f"no session between {window}")
        fitted = [_fit(spec, span, own, substream(seed, node, "churn")) for node, own in enumerate(played)]
        if not any(fitted):
            raise ExperimentError(str(path), _describe_gap(spec, span, played))
        return fitted
    return [[Session(*span, crashes=False)] for _ in range(nodes)]


def _describe_gap(spec: ChurnSpec, span: Span, played: list[Recorded]) -> str:
    """Say that no node is up in the run, and where the trace's sessions are."""
    first_s = min(own[0][0] for own in played)
    last_s = max(own[-1][1] for own in played)
    end_s = _end_s(spec, span)
    gap = f"no node is up between {_shown(spec.origin_s)} and {_shown(end_s)} s"
    if first_s >= end_s:
        return f"{gap}; the trace begins at {_shown(first_s)}"
    return f"{gap}; the trace ends at {_shown(last_s)}" if last_s <= spec.origin_s else gap


def _end_s(spec: ChurnSpec, span: Span) -> float:
    """Return the trace's instant at which the run ends."""
    return spec.origin_s + (span.end_ns - span.start_ns) / 1e9 * spec.speedup


def _shown(at_s: float) -> str:
    """Return an instant of a trace, which may be a time since 1970, without an exponent."""
    return f"{at_s:.15g}"


def mean_off_s(spec: ChurnSpec) -> float:
    """Return the mean time between two sessions; by default a quarter of the mean session."""
    return spec.on_s / 4 if spec.off_s is None else spec.off_s


def _draw_exponential(spec: ChurnSpec, span: Span, random: Random) -> list[Session]:
    """Draw alternating exponential times, stationary from the start: the rest of one is distributed like the whole.

    Source: SpiderCast section 3.8.
    """
    on_s, off_s = spec.on_s, mean_off_s(spec)
    up = random.random() < on_s / (on_s + off_s)
    at_ns = span.start_ns
    sessions: list[Session] = []
    while at_ns < span.end_ns:
        next_ns = at_ns + max(1, round(random.expovariate(1.0) * (on_s if up else off_s) * 1e9))
        if up:
            sessions.append(Session(at_ns, min(next_ns, span.end_ns), random.random() < spec.crash_ratio))
        at_ns, up = next_ns, not up
    return sessions


class Window(NamedTuple):
    """The part of a trace that is used (s)."""

    start_s: float
    end_s: float


def _check_window(spec: ChurnSpec, end_s: float, span: Span) -> None:
    """Refuse a run that is longer than the window.

    Raises:
        ExperimentError: it is.
    """
    needed_s = _end_s(spec, span)
    if needed_s > end_s + 1e-6:
        problem = (
            f"expected at least {_shown(needed_s)}, the trace's instant at which the run ends, got {_shown(end_s)}"
        )
        raise ExperimentError("$.churn.end_s", problem)


def _play_window(window: Window, recorded: list[Recorded], nodes: int, seed: int) -> list[Recorded]:
    """Return each node's sessions within the window; empty if there are none in it.

    The trace's nodes come in an order drawn from the seed. If they are used again, their sessions are shifted
    cyclically, so that two nodes do not join and leave together.
    """
    present = [cut for own in recorded if (cut := _cut(window, own))]
    substream(seed, NETWORK, "trace nodes").shuffle(present)
    played = present[:nodes]
    for node in range(len(present), nodes if present else 0):
        shift_s = substream(seed, node, "trace shift").uniform(0, window.end_s - window.start_s)
        played.append(_rotate(window, present[node % len(present)], shift_s))
    return played


def _cut(window: Window, sessions: Recorded) -> Recorded:
    """Return the parts of the sessions that are within the window."""
    cut = [(max(from_s, window.start_s), min(to_s, window.end_s)) for from_s, to_s in sessions]
    return [(from_s, to_s) for from_s, to_s in cut if from_s < to_s]


def _rotate(window: Window, sessions: Recorded, shift_s: float) -> Recorded:
    """Shift sessions within the window; what passes its end continues at its start.

    Whole microseconds are shifted, so that the two ends of a session across the window's end and start meet exactly.
    """
    length, shift = round((window.end_s - window.start_s) * 1e6), round(shift_s * 1e6)
    pieces: list[tuple[int, int]] = []
    for session in sessions:
        since, until = (round((at_s - window.start_s) * 1e6) + shift for at_s in session)
        pieces += [(since, min(until, length)), (max(since - length, 0), until - length)]
    return join_sessions([_instants(window, piece) for piece in pieces if piece[0] < piece[1]])


def _instants(window: Window, piece: tuple[int, int]) -> tuple[float, float]:
    """Return the instants of a piece that is in microseconds after the window's start."""
    since, until = piece
    return window.start_s + since / 1e6, window.start_s + until / 1e6


def _draw_flash_crowd(spec: ChurnSpec, nodes: int, span: Span, seed: int) -> dict[int, Session]:
    """Return the only session of each node of the flash crowd.

    Raises:
        ExperimentError: the crowd would not join within the span.
    """
    if not spec.flash_ratio:
        return {}
    first_ns, length_ns = round(spec.flash_at_s * 1e9), round(spec.flash_span_s * 1e9)
    if not span.start_ns <= first_ns <= first_ns + length_ns < span.end_ns:
        run = f"{span.start_ns / 1e9:g} to {span.end_ns / 1e9:g} s"
        raise ExperimentError("$.churn.flash_at_s", f"the flash crowd does not join within the run, {run}")
    crowd = substream(seed, NETWORK, "flash crowd").sample(range(nodes), round(spec.flash_ratio * nodes))
    joins_ns = {node: first_ns + round(substream(seed, node, "flash crowd").random() * length_ns) for node in crowd}
    return {node: Session(at_ns, span.end_ns, crashes=False) for node, at_ns in joins_ns.items()}


def _silence(spec: ChurnSpec, sessions: list[Session], seed: int, node: int) -> list[Session]:
    """Draw which crashes are silent, from a stream of its own: the sessions are the same with any ratio."""
    if not spec.silent_ratio:
        return sessions
    draws = substream(seed, node, "silent crashes")
    silent = [draws.random() < spec.silent_ratio for _ in sessions]
    return [session._replace(silent=drawn and session.crashes) for session, drawn in zip(sessions, silent, strict=True)]


def _fit(spec: ChurnSpec, span: Span, sessions: Recorded, random: Random) -> list[Session]:
    """Convert a trace's sessions to the run's clock and cut them to its span."""
    fitted: list[Session] = []
    for session in sessions:
        crashes = random.random() < spec.crash_ratio
        from_ns, to_ns = (_instant_ns(spec, span, at_s) for at_s in session)
        if from_ns < to_ns:
            fitted.append(Session(from_ns, to_ns, crashes))
    return fitted


def _instant_ns(spec: ChurnSpec, span: Span, at_s: float) -> int:
    """Return an instant of the trace on the run's clock, or the end of the span that it lies beyond."""
    since_start_ns = (at_s - spec.origin_s) / spec.speedup * 1e9
    return span.start_ns + round(min(max(since_start_ns, 0.0), float(span.end_ns - span.start_ns)))
