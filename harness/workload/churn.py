"""Churn: the sessions of each node, drawn or read before the run."""

from pathlib import Path
from random import Random
from typing import NamedTuple

from harness.experiment.form import ChurnSpec
from harness.workload.files import read_sessions
from peer.core.randomness import substream


class Span(NamedTuple):
    """The interval of churn: from the peers' start to their stop (ns from the workload's zero)."""

    start_ns: int
    end_ns: int


class Session(NamedTuple):
    """An interval in which a node is up (ns from the workload's zero).

    A session that begins with the span began before it, and one that ends with the span lasts longer.
    """

    from_ns: int
    to_ns: int
    crashes: bool


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
        ExperimentError: the file is missing or invalid.
    """
    if spec.kind == "exponential":
        return tuple(_draw_exponential(spec, span, substream(seed, node, "churn")) for node in range(nodes))
    if spec.kind == "sessions":
        assert spec.path is not None, "check_rules requires it"
        spans = read_sessions(folder / Path(spec.path).expanduser(), nodes)
        found = (_fit(spec, span, own, substream(seed, node, "churn")) for node, own in enumerate(spans))
        return tuple(tuple(own) for own in found)
    return ((Session(*span, crashes=False),),) * nodes


def mean_off_s(spec: ChurnSpec) -> float:
    """Return the mean time between two sessions; by default a quarter of the mean session."""
    return spec.on_s / 4 if spec.off_s is None else spec.off_s


def _draw_exponential(spec: ChurnSpec, span: Span, random: Random) -> tuple[Session, ...]:
    """Draw alternating exponential times, stationary from the start: the rest of one is distributed like the whole.

    Source: SpiderCast section 3.8.
    """
    on_s, off_s = spec.on_s, mean_off_s(spec)
    up = random.random() < on_s / (on_s + off_s)
    at_ns, sessions = span.start_ns, []
    while at_ns < span.end_ns:
        next_ns = at_ns + max(1, round(random.expovariate(1.0) * (on_s if up else off_s) * 1e9))
        if up:
            sessions.append(Session(at_ns, min(next_ns, span.end_ns), random.random() < spec.crash_ratio))
        at_ns, up = next_ns, not up
    return tuple(sessions)


def _fit(spec: ChurnSpec, span: Span, sessions: list[tuple[float, float]], random: Random) -> list[Session]:
    """Convert a trace's sessions to the run's clock and cut them to its span."""
    fitted: list[Session] = []
    for session in sessions:
        crashes = random.random() < spec.crash_ratio
        from_ns, to_ns = (span.start_ns + round((at_s - spec.origin_s) / spec.speedup * 1e9) for at_s in session)
        from_ns, to_ns = max(from_ns, span.start_ns), min(to_ns, span.end_ns)
        if from_ns < to_ns:
            fitted.append(Session(from_ns, to_ns, crashes))
    return fitted
